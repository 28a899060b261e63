"""A proxy before a real server that breaks connections in the middle of an answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Breaking:
    """Relays connections one by one; `after` lists how many bytes of each answer pass.

    `None`: all of them. 0: the connection is closed before any. After the end of the list, `rest`
    holds for each connection.
    """

    target: tuple[str, int]
    after: list[int | None]
    rest: int | None = None
    url: str = ""
    connections: int = 0

    def serve(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                self.connections += 1
                passes = self.after.pop(0) if self.after else self.rest
                threading.Thread(target=self._relay, args=(client, passes), daemon=True).start()

    def _relay(self, client: socket.socket, passes: int | None) -> None:
        with client, socket.create_connection(self.target) as server:
            threading.Thread(target=_pump, args=(client, server), daemon=True).start()
            _pump(server, client, passes)


def _pump(source: socket.socket, sink: socket.socket, passes: int | None = None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data if passes is None else data[:passes])
            passes = None if passes is None else passes - len(data)
            if passes is not None and passes <= 0:
                break
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def breaking(url: str, *after: int | None, rest: int | None = None) -> Iterator[Breaking]:
    """Run such a proxy before the server at `url`."""
    host, _, port = url.removeprefix("http://").partition(":")
    proxy = Breaking((host, int(port)), [*after], rest)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        threading.Thread(target=proxy.serve, args=(listening,), daemon=True).start()
        yield proxy
        listening.shutdown(socket.SHUT_RDWR)

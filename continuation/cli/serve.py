"""`continuation serve`: runs the gateway under uvicorn until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import socket
import sys
from urllib.parse import urlsplit

from continuation.cli.config import add_policies, in_force
from continuation.cli.exits import CommandError, Commands, Exit, port, reason
from continuation.cli.screen import print_json, screen
from continuation.config import ConfigError
from continuation.registry import upstreams

_UNREAD = 1 << 19
"""Bytes of a socket's send buffer. The system's default is several megabytes."""
_DESCRIPTION = """\
Run the gateway on this machine. Any agent whose base URL can be set gets complete answers from it.
A request to /anthropic, /openai or /gemini goes to that provider, with the caller's key. Callers on
other machines need an access token, from the environment variable CONTINUATION_TOKEN."""


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "serve",
        help="run the gateway, for agents in any language",
        description=_DESCRIPTION,
    )
    parser.epilog = "example: continuation serve --port 8787 --config continuation.toml"
    parser.add_argument(
        "--host", default="127.0.0.1", help="listen at this address (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=port,
        default=8787,
        metavar="N",
        help="listen on port N (default: %(default)s; 0: any free port)",
    )
    add_policies(parser)
    parser.add_argument(
        "--insecure", action="store_true", help="accept other machines without an access token"
    )
    parser.add_argument(
        "--show-content",
        action="store_true",
        help="show the end of running answers on the page at /",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM, then return success. Raises `CommandError`."""
    try:
        from continuation.gateway import app
        from continuation.gateway.access import is_loopback
        from continuation.gateway.server import Server
    except ImportError as error:
        message = f"{error}; the gateway needs: pip install 'continuation-engine[gateway]'"
        raise CommandError(message, Exit.MISSING) from error
    try:
        gateway = app(
            in_force(arguments.config, arguments.set),
            insecure=arguments.insecure,
            show_content=arguments.show_content,
        )
    except ConfigError as error:
        raise CommandError(str(error), Exit.USAGE) from error
    host: str = arguments.host
    if not (is_loopback(host) or gateway.has_token or arguments.insecure):
        message = (
            f"--host {host}: other machines need an access token; set "
            f"{gateway.table.token_env}, or add --insecure"
        )
        raise CommandError(message, Exit.USAGE)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, arguments.port), family=family, backlog=2048)
    except OSError as error:
        taken = error.errno in {errno.EADDRINUSE, errno.EACCES}
        helps = "choose another port" if taken else "choose an address of this machine"
        message = f"--host {host} --port {arguments.port}: {reason(error)}; {helps}"
        raise CommandError(message, Exit.USAGE) from error
    # This buffer has what a caller has not read yet, in addition to what the turn itself keeps.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # the gateway refuses WebSockets
    turns = logging.getLogger("continuation.turns")
    turns.setLevel(logging.INFO)
    turns.propagate = False
    if not arguments.quiet:
        turns.addHandler(logging.StreamHandler(sys.stdout))
    out = screen(sys.stderr)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    print_json({"url": url})
    out.line(f"listening at {url}; press Ctrl-C to stop", "bold")
    for name, upstream in gateway.table.upstreams.items():
        # Show the base URL that clients need: for some SDKs it contains the version.
        has_path = bool(urlsplit(upstream.base_url).path)
        version = "" if has_path else upstreams()[upstream.dialect].server_path
        out.line(f"  {url}/{name}{version}  {upstream.base_url}{version}")
    with listening, contextlib.suppress(KeyboardInterrupt):
        Server(gateway, lambda: in_force(arguments.config, arguments.set)).run(sockets=[listening])
    out.line("stopped")
    return Exit.WHOLE

"""Who may use the gateway. It is checked for every request, before anything else."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
from base64 import b64decode
from collections.abc import Mapping

from continuation.config.gateway import GatewayTable
from continuation.gateway.errors import GatewayError

TOKEN_HEADER = b"x-continuation-token"
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"})
"""Headers with a caller's credentials for a provider."""
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^][:/?#@\s]+)(?::\d*)?")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: a loopback address, `localhost` or a name below it."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host.strip("[]"))
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _password(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the password of HTTP Basic (RFC 7617); empty: there is none."""
    scheme, _, encoded = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"basic":
        return b""
    try:
        return b64decode(encoded).partition(b":")[2]
    except ValueError:
        return b""


class Access:
    """The rules of one gateway.

    A web page can send requests to this machine, and can make its own host name point here. It can
    neither hide its origin (`Origin`) nor send an address instead of that name in `Host`. So in
    `Host`, an address is accepted, and a name only if it is known.
    """

    def __init__(self, table: GatewayTable, *, insecure: bool) -> None:
        """Begin. `insecure`: callers on other machines need no token."""
        self.token = os.environ.get(table.token_env, "").encode()
        """The access token that every caller must send; empty: none is needed."""
        self._token_env = table.token_env
        self._insecure = insecure
        self._hosts = frozenset(table.hosts)
        self._origins = frozenset(table.origins)

    def check(
        self, client: str | None, headers: Mapping[bytes, bytes], token: bytes, *, own: bool = False
    ) -> None:
        """Raise a `GatewayError` for a caller without access. `token`: the one in the path, if any.

        `own`: the path is the gateway's own, so `authorization` is not for a provider. Then the
        token may be the password of HTTP Basic, which browsers send, with any user name.
        """
        self.check_page(headers)
        if self.token:
            token_sent = headers.get(TOKEN_HEADER, token) or (_password(headers) if own else b"")
            if not hmac.compare_digest(token_sent, self.token):
                problem = "is wrong" if token_sent else "is missing"
                message = (
                    f"the access token {problem}; send it as the header x-continuation-token, "
                    "or put /t/TOKEN before the path"
                )
                challenge = [(b"www-authenticate", b'Basic realm="continuation"')] if own else []
                raise GatewayError(401, message, *challenge)
        elif not (self._insecure or client is None or is_loopback(client)):
            message = (
                f"callers on other machines need an access token; set {self._token_env} "
                "for the gateway"
            )
            raise GatewayError(403, message)

    def check_page(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise a `GatewayError` for a foreign web page or an unknown name in `Host`."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        match = _HOST.fullmatch(host)
        name = match[1].strip("[]") if match else ""
        if not (is_loopback(name) or _address(name) or {host, name} & self._hosts):
            which = f"Host {host!r} is unknown; add it to hosts under [gateway]"
            raise GatewayError(403, which if host else "the header Host is missing; send it")
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        crossed = headers.get(b"sec-fetch-site", b"none") not in {b"none", b"same-origin"}
        same = origin in {f"http://{host}", f"https://{host}"}
        if ((origin and not same) or crossed) and origin not in self._origins:
            source = f"pages of {origin}" if origin else "other sites"
            message = f"{source} may not use the gateway; add the origin to origins under [gateway]"
            raise GatewayError(403, message)

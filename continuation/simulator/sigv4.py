"""AWS Signature Version 4: checks that a request was signed with its key's secret, and not changed.

Source: "Create a signed AWS API request" (AWS IAM user guide).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from continuation.simulator.wire import Recorded, Refusal

_SCHEME = "AWS4-HMAC-SHA256"
_PARTS = re.compile(
    _SCHEME + r" Credential=([^/]+)/((\d{8})/[^/]+/[^/]+/aws4_request), ?"
    r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$"
)
_FORM, _SKEW = "%Y%m%dT%H%M%SZ", 300
_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your "
    "AWS Secret Access Key and signing method. Consult the service documentation for details."
)


def refusal(request: Recorded, keys: Mapping[str, str]) -> Refusal | None:
    """Return why a signed request is refused; None: it is accepted. `keys`: secrets by key id."""
    header = request.headers.get("authorization", "")
    if not header.startswith(_SCHEME):
        return None
    if (parts := _PARTS.match(header)) is None:
        return _refused("IncompleteSignatureException", "Authorization header is not complete.")
    key, scope, day, names, signature = parts.groups()
    if (secret := keys.get(key)) is None:
        invalid = "The security token included in the request is invalid."
        return _refused("UnrecognizedClientException", invalid)
    when = request.headers.get("x-amz-date", "")
    try:
        age = datetime.now(UTC) - datetime.strptime(when, _FORM).replace(tzinfo=UTC)
    except ValueError:
        return _refused("IncompleteSignatureException", "x-amz-date is no date.")
    if abs(age.total_seconds()) > _SKEW or not when.startswith(day):
        return _refused("InvalidSignatureException", f"Signature expired: {when}")
    query = "&".join(sorted(request.query.split("&"))) if request.query else ""
    signed = {name: " ".join(request.headers.get(name, "").split()) for name in names.split(";")}
    canonical = [request.method, quote(request.path, safe="/~"), query]
    canonical += [f"{name}:{value}" for name, value in signed.items()]
    canonical += ["", names, hashlib.sha256(request.raw).hexdigest()]
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    mac = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), "\n".join([_SCHEME, when, scope, digest])):
        mac = hmac.digest(mac, part.encode(), "sha256")
    same = hmac.compare_digest(mac.hex(), signature) and "host" in signed
    return None if same else _refused("InvalidSignatureException", _MISMATCH)


def _refused(kind: str, text: str) -> Refusal:
    return Refusal(text, 403, kind)

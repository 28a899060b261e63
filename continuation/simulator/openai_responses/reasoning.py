"""The `encrypted_content` of reasoning: opaque outside, and checked when it comes back.

It carries digests of the item's id, of the credential it was made for and of the reasoning itself,
and a digest over all three, so that a changed one, one moved to another item and one of another
organisation can be told. What the simulator did not write it cannot check.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

_MARK = "gAAAAABsim"
_SIZE = 12
_KEY = "the simulator's own key"
_FAILED = "The encrypted content for item {} could not be verified. Reason: {}"
_UNREADABLE = "Encrypted content could not be decrypted or parsed."
_OTHER_OWNER = "Encrypted content organization_id did not match the target organization."
_OTHER_ITEM = "Encrypted content item_id did not match the target item id."


def seal(item: str, credential: str, text: str) -> str:
    """Return the encrypted content of one reasoning item."""
    sealed = b"".join(map(_digest, (item, credential, text)))
    return _MARK + base64.urlsafe_b64encode(sealed + _digest(_KEY + sealed.hex())).decode()


def error(item: Mapping[str, Any], credential: str, *, strict: bool) -> str | None:
    """Return why the encrypted content of a replayed item is refused, if it is.

    `strict`: content that was made elsewhere is refused too.
    """
    content = item.get("encrypted_content")
    if item.get("type") != "reasoning" or content is None:
        return None
    why = _fault(str(content), item.get("id"), credential, strict=strict)
    return None if why is None else _FAILED.format(item.get("id"), why)


def _fault(content: str, item: Any, credential: str, *, strict: bool) -> str | None:
    if not content.startswith(_MARK):
        return _UNREADABLE if strict else None
    parts = _opened(content)
    if parts is None:
        return _UNREADABLE
    if item is not None and parts[0] != _digest(str(item)):
        return _OTHER_ITEM
    return None if parts[1] == _digest(credential) else _OTHER_OWNER


def _opened(content: str) -> list[bytes] | None:
    try:
        raw = base64.b64decode(content.removeprefix(_MARK), altchars=b"-_", validate=True)
    except ValueError:
        return None
    sealed, check = raw[: 3 * _SIZE], raw[3 * _SIZE :]
    if check != _digest(_KEY + sealed.hex()):
        return None
    return [sealed[start : start + _SIZE] for start in range(0, 3 * _SIZE, _SIZE)]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:_SIZE]

"""Estimates the tokens of a text that the provider did not count, slightly too high.

If tiktoken's vocabulary is on disk, the text is encoded. If it is not, the tokens are estimated
from the kinds of characters. Nothing here uses the network. tiktoken downloads a missing or damaged
file without a timeout, so we check the file and its digest before we call tiktoken.

The estimate counts one match of `_PIECE` as one token and adds an eighth. Compared with o200k_base
it gives 1.05 to 1.65 times the tokens of prose in European and East Asian languages, code, JSON,
HTML, tables, numbers and base64. It gives up to 3.4 times the tokens of Thai and Indic scripts,
which have that many in older vocabularies. An estimate that is too high makes the limit slightly
lower. One that is too low makes the provider refuse the request.

The work is bounded. For a text of more than 262,144 characters, the tokens of 16 evenly spaced
slices are counted and scaled.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from continuation.limits import spellings

if TYPE_CHECKING:
    import tiktoken

_SLICE: Final = 16_384
_SLICES: Final = 16

_URL: Final = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
# Name and SHA-256 as tiktoken checks them (tiktoken_ext/openai_public.py).
_VOCABULARIES: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}

_OPENAI: Final = re.compile(r"(?:gpt-|chatgpt-|o\d|codex-)")
_CL100K: Final = re.compile(r"gpt-(?:3|4$|4-)")

_PIECE: Final = re.compile(
    r"""
      ([^\w\s])\1{3,31}                     # a rule of one repeated sign
    | [A-Z]?[a-z]{1,6} | [A-Z]{1,3}         # English words mostly, camelCase at its humps
    | [0-9]{1,3}
    | [^\W\d_a-zA-Z\u0900-\u0eff\u2e80-\uffff\U00010000-\U0010ffff]{1,3}  # other alphabets
    | [ \t]*[\r\n]{1,8} | [ \t]{2,64}       # one space goes with the word that follows it
    | [!-/:-@\[-`{-~]{1,2}                  # ASCII punctuation
    | [^\sA-Za-z0-9!-~]                     # CJK, Indic and the rest: each character by itself
    """,
    re.VERBOSE,
)
_SECOND_TOKEN: Final = re.compile(r"[\U00010000-\U0010ffff\u200d\ufe0f]")  # emoji cost about two
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/_]{40,}")  # base64, digests: no words, so more tokens


def estimate(text: str, model: str | None = None) -> int:
    """Return an estimate of the tokens of `text` for `model`; it is rather too high than too low.

    For OpenAI's models it is tiktoken's count. For other models it is a quarter more, because their
    vocabularies are not public and make more tokens. Without a vocabulary on disk it is an estimate
    by characters. Never raises and never downloads. The first call reads the vocabulary, which may
    take some tenths of a second.
    """
    if not text:
        return 0
    name = next(iter(spellings(model)), "") if model else ""
    encoding = _vocabulary_for(name)
    # Slices also prevent a crash. With two million spaces in one string, tiktoken's regular
    # expression engine has a stack overflow and raises an error that is not an `Exception`.
    starts = range(0, len(text), _SLICE)
    if len(starts) > _SLICES:
        starts = range(0, len(text) - _SLICE + 1, (len(text) - _SLICE) // (_SLICES - 1))
    counted = tokens = 0
    for start in starts:
        piece = text[start : start + _SLICE]
        counted += len(piece)
        if encoding:
            tokens += len(encoding.encode_ordinary(piece))
        else:
            extra = len(_SECOND_TOKEN.findall(piece)) + sum(map(len, _RANDOM.findall(piece))) // 5
            tokens += (len(_PIECE.findall(piece)) + extra) * 9 // 8 + 1
    tokens = -(-tokens * len(text) // counted)
    foreign = encoding is not None and not _OPENAI.match(name)
    return max(1, -(-tokens * 5 // 4) if foreign else tokens)


def vocabulary() -> str | None:
    """Return the name of the vocabulary in use, or None if tokens are estimated by characters."""
    encoding = _vocabulary_for("")
    return encoding.name if encoding else None


def _vocabulary_for(name: str) -> tiktoken.Encoding | None:
    """Return the model's vocabulary, or else another one on disk, or None."""
    names = sorted(_VOCABULARIES, reverse=not _CL100K.match(name))
    return next(filter(None, map(_load, names)), None)


@cache
def _load(name: str) -> tiktoken.Encoding | None:
    """Return a vocabulary if its file is on disk and undamaged, or None. Called once per process.

    The file is found by tiktoken's rules (tiktoken/load.py): its name is the SHA-1 of its URL.
    tiktoken would download it in two cases, which are checked here. If the folder's name is empty,
    its cache is off. If the digest is wrong, it deletes the file.
    """
    try:
        import tempfile  # slow to import, and most programs do not need it

        folders = [os.environ.get(name) for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")]
        standard = str(Path(tempfile.gettempdir(), "data-gym-cache"))
        folder = next((set_to for set_to in folders if set_to is not None), standard)
        path = Path(folder, hashlib.sha1(_URL.format(name).encode()).hexdigest())
        if not folder or hashlib.sha256(path.read_bytes()).hexdigest() != _VOCABULARIES[name]:
            return None
        import tiktoken  # slow to import: 20 ms or more

        return tiktoken.get_encoding(name)
    except Exception:  # on any failure the caller estimates by characters
        return None

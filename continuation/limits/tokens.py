"""Estimates how many tokens a text has where the provider did not count it, a little high.

With tiktoken's vocabulary on disk the text is encoded; without it, it is estimated from the kinds
of its characters. Nothing here touches the network: tiktoken fetches a missing or damaged file
without a timeout, so we look for the file and check its digest before tiktoken may see it.

The estimate takes one match of `_PIECE` for one token and adds an eighth. Measured against
o200k_base it gives 1.05 to 1.65 times the count for prose in European and East Asian languages,
code, JSON, HTML, tables, numbers and base64, and up to 3.4 for Thai and Indic scripts, which older
vocabularies really do cut that small. It errs high because the price of "too high" is a slightly
lower limit, and the price of "too low" is a refused request.

Work is bounded: of a text above 262,144 characters, 16 evenly spaced slices are counted and scaled.
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
    """Return an estimate of the tokens of `text` for `model`, rather too high than too low.

    The count is tiktoken's for OpenAI's own models, a quarter more than tiktoken's for everyone
    else's (whose vocabularies are not public and cut finer), or an estimate by characters when no
    vocabulary is on disk. Never raises and never downloads. The first call may take the time to
    read a vocabulary, some tenths of a second.
    """
    if not text:
        return 0
    name = next(iter(spellings(model)), "") if model else ""
    encoding = _vocabulary_for(name)
    # Slices also keep tiktoken alive: two million spaces in one string make its regular expression
    # engine run out of stack, and it then raises what is not an `Exception`.
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
    """Return the name of the vocabulary in use, or None when text is estimated by characters."""
    encoding = _vocabulary_for("")
    return encoding.name if encoding else None


def _vocabulary_for(name: str) -> tiktoken.Encoding | None:
    """Return the model's vocabulary, else another that is on disk; None without any."""
    names = sorted(_VOCABULARIES, reverse=not _CL100K.match(name))
    return next(filter(None, map(_load, names)), None)


@cache
def _load(name: str) -> tiktoken.Encoding | None:
    """Return a vocabulary if it is on disk and whole, else None; looked for once per process.

    The file is looked for by tiktoken's rules (tiktoken/load.py): it is named by the SHA-1 of its
    address. An empty folder name turns tiktoken's cache off, and it deletes a file with the wrong
    digest and fetches it again: both would mean a download.
    """
    try:
        import tempfile  # slow to import, and most programs never get here

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

"""Token estimates: near enough, a little high, and never a download."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest
import tiktoken
import tiktoken.registry
from hypothesis import given
from hypothesis import strategies as st

from continuation.limits import tokens
from continuation.limits.tokens import estimate, vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"

# A text, and how many tokens o200k_base makes of it twenty times over (its real table counted).
COUNTED = {
    "english": (
        "A language model stops in the middle of its answer because it ran out of output tokens, "
        "and the caller is left with half a file, half a document or half a tool call. ",
        741,
    ),
    "python": (
        "def clamp(ceiling: int, window: int | None) -> int:\n    if window is None:\n"
        "        return ceiling\n    return max(min(ceiling, window - 1024), 0)\n\n\n",
        880,
    ),
    "json": (
        '{"id": 17, "name": "first attempt", "limits": [4096, 64000], '
        '"usage": {"input_tokens": 1203, "cached": false}}\n',
        800,
    ),
    "table": (
        "| model | ceiling | window |\n|---|---:|---:|\n| claude-opus-5 | 128,000 | 1,000,000 |\n"
        "| gpt-4o | 16,384 | 128,000 |\n",
        1060,
    ),
    "html": (
        '<ul class="nav">\n  <li><a href="/docs/index.html">Docs</a></li>\n</ul>\n',
        500,
    ),
    "csv": ("17,204,0.4386,north,2026-11-21\n18,9113,1.0021,south,2026-11-22\n", 740),
    "german": (
        "Ein Sprachmodell hält mitten in seiner Antwort an, weil ihm die Ausgabetoken "
        "ausgegangen sind; übrig bleibt eine halbe Datei. ",
        581,
    ),
    "chinese": (
        "语言模型在回答到一半时停了下来，因为输出长度用完了，调用方只拿到半个文件或者半个函数调用。",
        640,
    ),
    "japanese": (
        "言語モデルは出力の上限に達したため、回答の途中で止まってしまい、呼び出し側には半分のファイルしか残りません。",
        800,
    ),
    "korean": (
        "언어 모델은 출력 한도에 도달하여 답변 도중에 멈췄고 "
        "호출자에게는 절반의 파일만 남았습니다. ",
        681,
    ),
    "russian": (
        "Языковая модель остановилась посреди ответа, потому что закончились токены вывода, "
        "и у вызывающей стороны осталась половина файла. ",
        621,
    ),
    "emoji": (
        "Shipped it 🚀🚀 and the tests are green ✅ so let us celebrate 🎉👩‍💻 now. ",
        521,
    ),
    "base64": (
        "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9T"
        "XL0Y4OHwAAAABJRU5ErkJggg==",
        1320,
    ),
}


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    tokens._load.cache_clear()
    yield
    tokens._load.cache_clear()


@pytest.fixture
def no_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


def place(folder: Path, name: str, data: bytes) -> Path:
    """Put a file where tiktoken looks for a vocabulary."""
    path = folder / hashlib.sha1(URL.format(name).encode()).hexdigest()
    path.write_bytes(data)
    return path


@pytest.fixture
def one_token_per_byte(no_vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A vocabulary on disk: every byte is a token, so that counts are known."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    for name in ("o200k_base", "cl100k_base"):
        encoding = tiktoken.Encoding(
            name, pat_str=r"(?s).+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 256}
        )
        data = name.encode()
        place(no_vocabulary, name, data)
        monkeypatch.setitem(tokens._VOCABULARIES, name, hashlib.sha256(data).hexdigest())
        monkeypatch.setitem(tiktoken.registry.ENCODINGS, name, encoding)
    return no_vocabulary


@pytest.mark.parametrize("kind", COUNTED)
def test_the_estimate_without_a_vocabulary_is_a_little_high(kind: str, no_vocabulary: Path) -> None:
    text, counted = COUNTED[kind]
    assert 1.05 <= estimate(text * 20) / counted <= 1.65
    assert vocabulary() is None
    assert list(no_vocabulary.iterdir()) == []


@given(
    st.text(st.characters(exclude_categories=()), max_size=400), st.none() | st.text(max_size=40)
)
def test_any_text_and_any_model_name_give_a_sane_number(text: str, model: str | None) -> None:
    tokens._load.cache_clear()
    found = estimate(text, model)
    assert (found >= 1) == bool(text)
    assert 0 <= found <= 4 * len(text) + 3


@pytest.mark.usefixtures("no_vocabulary")
def test_a_huge_text_is_sampled_and_not_read_through() -> None:
    unit = COUNTED["python"][0] + COUNTED["english"][0]
    small, huge = unit * 300, unit * 60_000  # 0.1 and 20 million characters
    started = time.thread_time()
    found = estimate(huge)
    assert time.thread_time() - started < 1  # about 0.02 s; reading it all takes more than 1.5 s
    assert found / len(huge) == pytest.approx(estimate(small) / len(small), rel=0.02)


@pytest.mark.usefixtures("no_vocabulary")
def test_a_sample_sees_the_end_of_a_huge_text_too() -> None:
    prose, chinese = COUNTED["english"][0] * 6_000, COUNTED["chinese"][0] * 12_000
    assert estimate(prose + chinese) == pytest.approx(estimate(prose) + estimate(chinese), rel=0.15)


@pytest.mark.usefixtures("one_token_per_byte")
def test_a_vocabulary_on_disk_counts_for_openai_and_a_quarter_more_for_others() -> None:
    text = "x" * 1000
    for model in ("gpt-6.1-sol", "openai/gpt-4o", "o3", "gpt-4-0613", "ft:gpt-4o-mini:a::b"):
        assert estimate(text, model) == 1000
    for other in (None, "", "claude-opus-5", "gemini-2.5-pro", "llama-3.3-70b"):
        assert estimate(text, other) == 1250
    assert vocabulary() == "o200k_base"


@pytest.mark.usefixtures("one_token_per_byte")
def test_control_words_and_lone_surrogates_are_text_like_any_other() -> None:
    assert estimate("<|endoftext|>", "gpt-4o") == len("<|endoftext|>")
    assert estimate("cut \ud83d here", "gpt-4o") >= 9


def test_the_other_vocabulary_serves_when_only_that_one_is_there(one_token_per_byte: Path) -> None:
    place(one_token_per_byte, "o200k_base", b"damaged")
    assert vocabulary() == "cl100k_base"
    assert estimate("x" * 1000, "gpt-4o") == 1000


@pytest.mark.usefixtures("one_token_per_byte")
def test_old_gpt_models_are_counted_with_their_own_vocabulary() -> None:
    for model in ("gpt-4", "gpt-4-turbo", "gpt-3.5-turbo", "azure/gpt-35-turbo"):
        assert tokens._vocabulary_for(model.rpartition("/")[2]) is tiktoken.get_encoding(
            "cl100k_base"
        )
    for model in ("gpt-4o", "gpt-4.1", "gpt-5", "o1", "claude-opus-5"):
        assert tokens._vocabulary_for(model) is tiktoken.get_encoding("o200k_base")


def test_a_damaged_vocabulary_is_left_alone(no_vocabulary: Path) -> None:
    # tiktoken would delete it and download another.
    path = place(no_vocabulary, "o200k_base", b"damaged")
    assert vocabulary() is None
    assert path.read_bytes() == b"damaged"


@pytest.mark.usefixtures("one_token_per_byte")
def test_a_tiktoken_that_cannot_be_imported_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert vocabulary() is None
    assert 800 <= estimate("word " * 1000, "gpt-4o") <= 1300


@pytest.mark.usefixtures("one_token_per_byte")
def test_a_cache_that_is_turned_off_holds_no_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert vocabulary() is None


OFFLINE = """
    import socket, sys

    def refuse(*_, **__):
        print("network!", flush=True)
        import os
        os._exit(3)

    socket.socket.connect = socket.socket.connect_ex = refuse
    socket.getaddrinfo = socket.create_connection = refuse

    from continuation.limits.tokens import estimate, vocabulary
    assert not {"tiktoken", "requests"} & sys.modules.keys(), "imported before it is needed"
    for model in (None, "gpt-4o", "gpt-4", "gpt-6", "claude-opus-5", "no such model"):
        assert 10 <= estimate("Nothing here may touch the network. " * 2, model) <= 26, model
    assert vocabulary() is None
    assert not {"tiktoken", "requests"} & sys.modules.keys(), "imported without a vocabulary"
    print("fine")
"""


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", "TMPDIR", "none"])
def test_without_a_vocabulary_nothing_is_downloaded_or_imported(
    variable: str, tmp_path: Path
) -> None:
    env = {
        k: v for k, v in os.environ.items() if k not in {"TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"}
    }
    env["TMPDIR"] = str(tmp_path)
    # An empty name means "no cache at all" to tiktoken: it would download every time.
    env["TIKTOKEN_CACHE_DIR" if variable == "none" else variable] = (
        "" if variable == "none" else str(tmp_path)
    )
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OFFLINE)],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "fine", "")

"""Ceilings: the table, spellings of model names, the clamp, what a client learns, the refresh."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from continuation import limits
from continuation.limits import (
    DEFAULT_CEILING,
    Learned,
    ModelLimits,
    ModelRow,
    clamp,
    find,
    parse,
    pick,
    spellings,
    table,
)

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
TABLE = Path(limits.__file__).with_name("models.toml")
TEXT = TABLE.read_text(encoding="utf-8")
ENTRIES: list[dict[str, Any]] = tomllib.loads(TEXT)["model"]


def known(model: str) -> ModelLimits:
    found = find(model)
    assert found is not None, model
    return found


# -- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["match"])
def test_every_row_is_sane(entry: dict[str, Any]) -> None:
    assert entry["match"] == entry["match"].lower().strip()
    assert 2_048 <= entry["ceiling"] <= 4_194_304
    assert entry.get("thinking", "none") in {"none", "manual", "adaptive", "always"}
    assert entry["source"] in tomllib.loads(TEXT)["sources"]
    assert date(2025, 1, 1) <= date.fromisoformat(entry["date"]) <= date.today()  # noqa: DTZ011 -- a day's difference does not matter
    assert entry.keys() <= {*ModelLimits.__dataclass_fields__, "match", "pin"}
    if entry.get("window_shared"):
        assert entry["ceiling"] <= entry["window"]


def test_every_row_can_be_reached() -> None:
    def reached(row: ModelRow) -> ModelRow | None:
        example = re.sub(r"\[(.)[^]]*\]", r"\1", row.match).replace("*", "").replace("?", "9")
        return pick(table(), example)

    found = {row.match: (row.limits, reached(row)) for row in table()}
    assert [name for name, (own, row) in found.items() if row is None or row.limits != own] == []


def test_no_glob_is_there_twice() -> None:
    globs = [entry["match"] for entry in ENTRIES]
    assert len(globs) == len(set(globs))


CEILINGS = {
    "claude-fable-5-2": 128_000, "claude-mythos-5-1": 128_000, "claude-opus-5-5": 128_000,
    "claude-opus-5": 128_000, "claude-sonnet-5-5": 128_000, "claude-haiku-5-5": 128_000,
    "claude-opus-4-8": 128_000, "claude-opus-4-6": 128_000, "claude-sonnet-4-6": 128_000,
    "claude-mythos-preview": 128_000, "claude-opus-4-5": 64_000, "claude-sonnet-4-5": 64_000,
    "claude-haiku-4-5": 64_000, "claude-opus-4-1": 32_000, "claude-opus-4-0": 32_000,
    "claude-sonnet-4-0": 64_000, "claude-3-7-sonnet-20250219": 64_000,
    "claude-3-5-haiku-20241022": 8_192, "claude-3-opus-20240229": 4_096,
    "gpt-3.5-turbo": 4_096, "gpt-4": 8_192, "gpt-4-turbo": 4_096, "gpt-4o": 16_384,
    "gpt-4o-mini": 16_384, "gpt-4o-2024-05-13": 4_096, "gpt-4.1-nano": 32_768, "o1": 100_000,
    "o3-mini": 100_000, "o4-mini": 100_000, "o3-deep-research": 100_000, "gpt-5": 128_000,
    "gpt-5-pro": 272_000, "gpt-5-chat-latest": 16_384, "gpt-5.3-chat-latest": 16_384,
    "gpt-5.3-codex": 128_000, "gpt-5.3-codex-spark": 32_000, "gpt-5.4-nano": 128_000,
    "gpt-5.5-pro": 128_000, "gpt-6-astra": 128_000, "gpt-6.1-sol": 128_000, "gpt-oss-120b": 65_536,
    "gemini-1.5-flash": 8_192, "gemini-2.0-flash-lite": 8_192, "gemini-2.5-pro": 65_535,
    "gemini-2.5-flash-lite": 65_535, "gemini-3-flash-preview": 65_535, "gemini-3.5-flash": 65_535,
    "gemini-3.1-pro-preview": 65_536, "gemini-3.5-flash-lite": 65_536, "gemini-3.8-flash": 65_536,
    "gemini-4-argon": 1_048_576, "gemini-4-neon": 1_048_576, "gemma-3-27b-it": 8_192,
    "gemma-4-31b-it": 32_768, "gemini-2.5-computer-use-preview-10-2025": 64_000,
    "deepseek-chat": 8_192, "deepseek-reasoner": 65_536, "deepseek-v4-flash": 393_216,
    "kimi-k2.6": 262_144, "kimi-k3": 1_048_576, "qwen-max": 8_192, "qwen-flash": 32_768,
    "glm-4.6": 131_072, "glm-5.2": 131_072, "mistral-medium-3": 262_144, "grok-4.7": 500_000,
    "grok-4.3": 1_000_000, "minimax-m2.7": 131_072,
}  # fmt: skip


def test_documented_models_have_their_documented_ceiling() -> None:
    assert {model: known(model).ceiling for model in CEILINGS} == CEILINGS


FACTS: dict[tuple[str, object], str] = {
    ("prefill", True): """
        claude-haiku-4-5 claude-opus-4-1 claude-3-opus gemini-2.5-pro gemini-3-pro-preview
        gemini-3.5-flash deepseek-v4-pro kimi-k2.5""",
    ("prefill", False): """
        claude-opus-4-6 claude-sonnet-4-6 claude-opus-5 gemini-3.5-flash-lite gemini-3.6-flash
        gemini-4-argon gpt-4o gpt-6 o3 gpt-oss-20b""",
    ("binding", True): """
        claude-fable-5-1 claude-fable-5-2 claude-mythos-5-2 claude-opus-5-5 claude-sonnet-5.5
        claude-haiku-5-5-20261020""",
    ("binding", False): "claude-fable-5 claude-opus-5 claude-opus-5-20260724 claude-opus-4-8",
    ("thinking", "always"): "claude-fable-5 claude-opus-5-5 o3 gpt-5 gemini-2.5-pro gemini-4-argon",
    ("thinking", "adaptive"): """
        claude-opus-5 claude-haiku-5-5 claude-sonnet-4-6 gemini-2.5-flash gpt-6""",
    ("thinking", "manual"): "claude-opus-4-5 claude-haiku-4-5 claude-3-7-sonnet",
    ("thinking", "none"): "claude-3-5-haiku gpt-4o gpt-5-chat-latest gemini-2.0-flash",
    ("window_shared", True): """
        claude-opus-4-1 claude-sonnet-4 claude-3-5-sonnet gemini-4-argon gpt-4""",
    ("window_shared", False): "claude-opus-4-5 claude-haiku-4-5 claude-opus-5 gemini-2.5-pro",
}


@pytest.mark.parametrize(("fact", "models"), FACTS.items(), ids=str)
def test_what_else_is_known_of_models_follows_their_vendors(
    fact: tuple[str, object], models: str
) -> None:
    name, value = fact
    assert [model for model in models.split() if getattr(known(model), name) != value] == []


def test_an_unknown_model_is_unknown_and_a_new_minor_is_not_an_old_one() -> None:
    names = "my-model claude-opus-4-9 claude-opus-6 gpt-7 gemini"
    for model in ("", "  ", "/", ":", *names.split()):
        assert find(model) is None, model
    assert DEFAULT_CEILING == 64_000
    assert ModelLimits(DEFAULT_CEILING) == ModelLimits(64_000, None, False, "none", False, False)


def test_the_most_specific_row_wins_whatever_the_order() -> None:
    lines = [
        '{ match = "m-*", ceiling = 1 }', '{ match = "m-1*", ceiling = 2 }',
        '{ match = "m-1", ceiling = 3 }', '{ match = "m-1?x*", ceiling = 4 }',
    ]  # fmt: skip
    for order in (lines, lines[::-1]):
        rows = parse(f"model = [{','.join(order)}]")
        found = [
            row.limits.ceiling
            for name in ("m-2", "m-12", "m-1", "m-1-x")
            if (row := pick(rows, name))
        ]
        assert found == [1, 2, 3, 4]


def test_importing_limits_reads_no_table() -> None:
    code = "import sys, continuation.limits as it; sys.exit(it.table.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- spellings -----------------------------------------------------------------------------------

SPELLED = {
    "claude-opus-4-5": """
        claude-opus-4-5-20251101 claude-opus-4.5 Claude-Opus-4.5 anthropic/claude-opus-4.5
        anthropic/claude-4.5-opus openrouter/anthropic/claude-opus-4.5:thinking
        anthropic.claude-opus-4-5-20251101-v1:0 us.anthropic.claude-opus-4-5-20251101-v1:0
        bedrock/global.anthropic.claude-opus-4-5-20251101-v1:0 claude-opus-4-5@20251101
        arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-opus-4-5-20251101-v1:0
        claude-opus-4-5-latest databricks-claude-opus-4-5 anthropic--claude-4.5-opus
        claude-opus-4-5[1m] vertex_ai/claude-opus-4-5@default""",
    "claude-opus-4-0": """
        claude-opus-4 claude-opus-4-20250514 claude-4-opus-20250514 claude-opus-4@20250514
        apac.anthropic.claude-opus-4-20250514-v1:0 us-gov.anthropic.claude-opus-4-20250514-v1:0""",
    "claude-3-5-sonnet": """
        claude-3.5-sonnet claude-3-5-sonnet-20241022 claude-3-5-sonnet-latest claude-sonnet-3.5
        anthropic.claude-3-5-sonnet-20241022-v2:0 claude-3-5-sonnet-v2@20241022""",
    "gemini-2.5-pro": """
        models/gemini-2.5-pro publishers/google/models/gemini-2.5-pro google/gemini-2.5-pro
        projects/p/locations/us/publishers/google/models/gemini-2.5-pro gemini-2-5-pro
        gemini-2.5-pro-preview-06-05 gemini-2.5-pro-001 gemini/gemini-2.5-pro""",
    "gpt-4o": """
        gpt-4o-2024-08-06 openai/gpt-4o ft:gpt-4o-2024-08-06:acme::abc123 azure/gpt-4o
        openai/gpt-4o:extended""",
    "gpt-4": "gpt-4-0613 gpt-4-0314 GPT-4",
    "gpt-4.1": "gpt-4.1-2025-04-14 gpt-4-1 gpt-4-1-mini",
    "gpt-oss-120b": "openai.gpt-oss-120b-1:0 gpt-oss:20b openai/gpt-oss-120b:free",
    "kimi-k2.6": """
        accounts/fireworks/models/kimi-k2p6 moonshotai/Kimi-K2.6 moonshotai.kimi-k2.6""",
    "deepseek-r1": """
        deepseek.r1-v1:0 us.deepseek.r1-v1:0 deepseek-ai/DeepSeek-R1-0528 deepseek-r1:14b""",
    "qwen3-coder": """
        Qwen/Qwen3-Coder-480B-A35B-Instruct qwen-3-coder-480b qwen.qwen3-coder-480b-a35b-v1:0""",
    "glm-4.6": "zai-org/GLM-4.6 z-ai/glm-4.6:exacto zai-glm-4.6",
    "llama-3.3": """
        meta-llama/Llama-3.3-70B-Instruct llama3.3:70b us.meta.llama3-3-70b-instruct-v1:0
        accounts/fireworks/models/llama-v3p3-70b-instruct meta-llama/Meta-Llama-3.3-70B""",
    "mistral-large": "mistral-large-latest mistral-large-2512 mistral/mistral-large-latest",
    "grok-4.1-fast": "x-ai/grok-4.1-fast grok-4-1-fast-reasoning xai.grok-4-1-fast",
}


@pytest.mark.parametrize("name", SPELLED)
def test_other_spellings_are_the_same_model(name: str) -> None:
    assert [other for other in SPELLED[name].split() if known(other) != known(name)] == []


def test_the_dated_name_is_tried_before_the_name_without_its_date() -> None:
    assert spellings("openai/gpt-4o-2024-05-13") == ("gpt-4o-2024-05-13", "gpt-4o")
    assert known("gpt-4o-2024-05-13").ceiling < known("gpt-4o-2024-08-06").ceiling


@given(st.text(max_size=80))
def test_no_name_is_too_strange_to_look_up(model: str) -> None:
    names = spellings(model)
    assert all(
        name == name.lower().strip("\n") and "/" not in name and ":" not in name for name in names
    )
    assert find(model) == find(f"some/path/{model}") or ":" in model or "[" in model


# -- the clamp -----------------------------------------------------------------------------------

NUMBER = st.integers(1, 2_000_000)


@given(NUMBER, NUMBER, NUMBER, st.integers(0, 10_000), NUMBER)
def test_a_clamped_limit_fits_the_window_or_is_the_last_one_used(
    ceiling: int, window: int, prompt: int, margin: int, floor: int
) -> None:
    limit = clamp(ceiling, window, prompt, margin=margin, floor=floor)
    assert limit >= floor
    if limit > floor:
        assert limit <= ceiling
        assert prompt + limit + margin <= window
        assert limit == ceiling or prompt + limit + margin == window


@given(NUMBER, NUMBER)
def test_without_window_or_prompt_the_ceiling_is_the_limit(ceiling: int, floor: int) -> None:
    for window, prompt in ((None, 5), (5, None), (None, None)):
        assert clamp(ceiling, window, prompt, margin=9, floor=floor) == max(ceiling, floor)


def test_a_claude_of_2025_is_clamped_by_its_window() -> None:
    assert clamp(64_000, 200_000, 188_240, margin=1_024, floor=4_096) == 10_736
    assert clamp(64_000, 200_000, 199_000, margin=1_024, floor=4_096) == 4_096


# -- what a client learned -----------------------------------------------------------------------

KEY = ("https://api.anthropic.com", "9f86d081", "claude-opus-5")


def test_the_newest_ceiling_counts_and_nonsense_does_not() -> None:
    learned = Learned()
    for n in (64_000, 128_000, 0, -1):
        learned.learn(KEY, ceiling=n)
    assert learned.get(KEY).ceiling == 128_000


def test_what_an_answer_needed_is_remembered_until_it_is_forgotten() -> None:
    learned = Learned()
    assert not learned.knows(KEY)
    for tokens, known in ((64_000, 64_000), (0, 64_000), (None, None)):
        learned.learn(KEY, needed=tokens)
        assert learned.get(KEY).needed == known
    learned.learn("never seen", needed=None)


def test_what_was_learned_holds_for_one_key_of_one_client() -> None:
    learned, other_client = Learned(), Learned()
    learned.learn(KEY, no_prefill=True)
    other_model = learned.get((*KEY[:2], "claude-haiku-4-5"))
    assert learned.get(KEY).no_prefill
    for untaught in (other_model, other_client.get(KEY)):
        assert (untaught.ceiling, untaught.needed, untaught.no_prefill) == (None, None, False)


def test_of_many_threads_exactly_one_asks_the_models_endpoint() -> None:
    learned, threads, keys = Learned(), 16, [("upstream", "digest", str(n)) for n in range(200)]
    together = threading.Barrier(threads)

    def ask() -> list[bool]:
        together.wait(timeout=60)
        return [learned.learn(key, asked=True) for key in keys]

    with ThreadPoolExecutor(threads) as pool:
        asked = [future.result(timeout=60) for future in [pool.submit(ask) for _ in range(threads)]]
    assert [sum(answers) for answers in zip(*asked, strict=True)] == [1] * len(keys)


def test_a_client_for_many_tenants_does_not_grow_without_end() -> None:
    learned = Learned(capacity=3)
    for n in range(3):
        learned.learn(n, ceiling=1_000 + n)
    learned.learn(0, ceiling=2_000)  # used again, so 1 is now the one unused for longest
    learned.learn(3, ceiling=1_003)
    assert [learned.get(n).ceiling for n in range(4)] == [2_000, None, 1_002, 1_003]
    learned.get(0)  # looked at, and so used
    for n in (4, 5):
        learned.learn(n, ceiling=1_000 + n)
    assert [learned.get(n).ceiling for n in (0, 2, 3)] == [2_000, None, None]


# -- the refresh script --------------------------------------------------------------------------

SMALL_TABLE = """\
# a comment that stays
model = [
  # -- a family
  { match = "claude-opus-5*", ceiling = 64_000, window = 1_000_000, thinking = "adaptive", source = "anthropic", date = "2026-01-01" },
  { match = "claude-pinned*", ceiling = 1_000, source = "anthropic", date = "2026-01-01", pin = true },
  { match = "claude-kept*", ceiling = 8_192, window = 100, source = "anthropic", date = "2026-01-01" },
]

[sources]
anthropic = "the vendor"
"""  # noqa: E501 -- one row is one line


def offer(provider: str = "anthropic", **facts: object) -> dict[str, object]:
    return {"litellm_provider": provider, "mode": "chat", "max_input_tokens": 90, **facts}


DATA = {
    "comment": "not a model",
    "sample_spec": {"max_output_tokens": "a number"},
    "claude-opus-5": offer(max_output_tokens=128_000, supports_assistant_prefill=False),
    "claude-opus-5-20260724": offer(max_output_tokens=96_000, supports_assistant_prefill=False),
    "claude-pinned-1": offer(max_output_tokens=2_000),
    "claude-kept-1": offer(
        max_output_tokens=8_192, max_input_tokens=200, supports_assistant_prefill=True
    ),
    "anthropic/claude-new-20260101": offer(max_output_tokens=7_000, supports_reasoning=True),
    "claude-opus-5-resold": offer("some_reseller", max_output_tokens=4_096),
    "claude-embed": offer(max_output_tokens=1, mode="embedding"),
    "claude-null": offer(max_output_tokens=None),
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "refresh_models", ROOT / "scripts/refresh_models.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    data, target = tmp_path / "data.json", tmp_path / "models.toml"
    data.write_text(json.dumps(DATA), encoding="utf-8")
    target.write_text(SMALL_TABLE, encoding="utf-8")
    return data, target


def test_a_refresh_shows_a_diff_and_writes_nothing(
    script: ModuleType, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data, target = files
    assert script.main([str(data), "--table", str(target), "--date", "2026-11-21"]) == 0
    shown = capsys.readouterr()
    assert target.read_text(encoding="utf-8") == SMALL_TABLE
    assert '-  { match = "claude-opus-5*", ceiling = 64_000' in shown.out
    assert '+  { match = "claude-opus-5*", ceiling = 96_000' in shown.out
    assert "claude-pinned" not in shown.out
    assert "claude-opus-5 has 128_000" in shown.err


def test_a_written_refresh_keeps_pins_comments_and_what_it_does_not_know(
    script: ModuleType, files: tuple[Path, Path]
) -> None:
    data, target = files
    arguments = [str(data), "--table", str(target), "--date", "2026-11-21", "--write"]
    assert script.main(arguments) == 0
    written = target.read_text(encoding="utf-8")
    assert [line for line in written.splitlines() if "#" in line] == [
        "# a comment that stays",
        "  # -- a family",
    ]
    rows = {row.match: row.limits for row in parse(written)}
    assert rows == {
        # of two numbers the lower; the smaller input limit says nothing of the window
        "claude-opus-5*": ModelLimits(
            96_000, 1_000_000, thinking="adaptive", source="litellm", date="2026-11-21"
        ),
        "claude-pinned*": ModelLimits(1_000, source="anthropic", date="2026-01-01"),
        "claude-kept*": ModelLimits(8_192, 200, prefill=True, source="litellm", date="2026-11-21"),
        "claude-new": ModelLimits(
            7_000, 90, thinking="adaptive", source="litellm", date="2026-11-21"
        ),
    }
    script.main(arguments)
    assert target.read_text(encoding="utf-8") == written


def test_the_shipped_table_is_in_the_form_the_refresh_writes(script: ModuleType) -> None:
    lines = [
        line
        for line in TEXT.splitlines()
        if "match = " in line and not line.lstrip().startswith("#")
    ]
    assert len(lines) == len(ENTRIES)
    assert [script._render(script._read(line)) for line in lines] == lines


@pytest.mark.parametrize("content", ["", "[]", "{}", "not json", '{"a": {"mode": "chat"}}'])
def test_a_file_that_is_not_the_data_set_is_refused(
    content: str, script: ModuleType, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data, target = files
    data.write_text(content, encoding="utf-8")
    assert script.main([str(data), "--table", str(target), "--write"]) == 1
    assert str(data) in capsys.readouterr().err
    assert target.read_text(encoding="utf-8") == SMALL_TABLE

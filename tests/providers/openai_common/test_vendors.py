"""Vendor profiles: the data, which one a URL has, and what the user may say above it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from continuation.config import read
from continuation.providers.openai_chat.request import DIALECT
from continuation.providers.openai_common import vendors as _vendors
from continuation.providers.openai_common.vendors import (
    CONDITIONS,
    Profile,
    built_in,
    mistakes,
    profile,
)
from continuation.types import Request

# --- the data -----------------------------------------------------------------------------------


def test_a_stranger_has_the_defaults() -> None:
    assert built_in()["unknown"] == Profile(stream_options=True)


def test_every_key_of_a_profile_can_be_set() -> None:
    assert {*_vendors._READERS, "name", "urls"} == {field.name for field in fields(Profile)}


@pytest.mark.parametrize("name", built_in())
def test_a_profile_agrees_with_itself(name: str) -> None:
    one = built_in()[name]
    assert one.name == name
    assert (one.models_endpoint == "") == (one.ceiling_field == "")
    assert "{model}" in one.models_endpoint or not one.models_endpoint
    if one.prefill == "none":
        prefill = {"prefill_path", "prefill_unless", "prefill_models", "prefill_echoes"}
        assert not any(getattr(one, key) for key in prefill)
    else:  # constrained decoding begins its grammar anew
        assert "response_format" in one.prefill_unless
    assert one.prefill != "bare" or one.prefill_models, "ignored without an error: name the models"
    assert all(url == url.lower() and "://" not in url for url in one.urls)


# --- by URL -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1/chat/completions", "openai"),
        ("https://eu.api.openai.com/v1/responses", "openai"),
        ("https://API.OpenAI.com:443/v1/chat/completions?x=1", "openai"),
        (
            "https://me.openai.azure.com/openai/deployments/d/chat/completions?api-version=1",
            "azure",
        ),
        ("https://me.services.ai.azure.com/openai/v1/chat/completions", "azure"),
        ("https://api.deepseek.com/chat/completions", "deepseek"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.moonshot.ai/v1/chat/completions", "moonshot"),
        ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1/chat/completions", "dashscope"),
        ("https://open.bigmodel.cn/api/paas/v4/chat/completions", "zhipu"),
        ("https://api.z.ai/api/paas/v4/chat/completions", "zhipu"),
        ("https://api.mistral.ai/v1/chat/completions", "mistral"),
        ("https://api.groq.com/openai/v1/chat/completions", "groq"),
        ("https://api.x.ai/v1/chat/completions", "xai"),
        ("https://openrouter.ai/api/v1/chat/completions", "openrouter"),
        ("https://api.together.xyz/v1/chat/completions", "together"),
        ("https://api.fireworks.ai/inference/v1/chat/completions", "fireworks"),
        ("http://localhost:11434/v1/chat/completions", "ollama"),
        ("http://[::1]:11434/v1/chat/completions", "ollama"),
        ("http://127.0.0.1:1234/v1/chat/completions", "lmstudio"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", "gemini"),
        (
            "https://us-central1-aiplatform.googleapis.com/v1/projects/p/endpoints/openapi/"
            "chat/completions",
            "gemini",
        ),
        ("https://user:secret@api.x.ai/v1/chat/completions", "xai"),
        ("http://127.0.0.1:8000/v1/chat/completions", "unknown"),
        ("https://gateway.example.com/api.openai.com/v1/chat/completions", "unknown"),
        ("https://api.openai.com.example.com/v1/chat/completions", "unknown"),
        ("https://notapi.deepseek.com/chat/completions", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_url_finds_its_vendor(url: str, name: str) -> None:
    assert profile(url).name == name


def test_the_longest_glob_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    globs = {"a": ("*.example.com",), "b": ("llm.example.com/v1",), "c": ("llm.*",)}
    found = {name: Profile(name, urls) for name, urls in globs.items()}
    monkeypatch.setattr(_vendors, "built_in", lambda: {**found, "unknown": Profile()})
    assert _vendors._matching("llm.example.com/v1/chat/completions").name == "b"
    assert _vendors._matching("llm.example.com/v2/chat/completions").name == "a"
    assert _vendors._matching("llm.test/v2/chat/completions").name == "c"


def test_a_profile_is_found_once() -> None:
    url = "https://api.x.ai/v1/chat/completions"
    assert profile(url) is profile(url)
    assert profile(url, {"limit": "max_tokens"}) is profile(url, {"limit": "max_tokens"})
    for number in range(2 * _vendors._MOST):
        profile(f"https://{number}.example.com")
    assert len(_vendors._FOUND) <= _vendors._MOST


def test_the_data_are_read_when_they_are_needed() -> None:
    code = (
        "import sys, continuation.providers.openai_common.vendors as vendors\n"
        "assert vendors.built_in.cache_info().currsize == 0\n"
        "assert 'tomllib' not in sys.modules\n"
        "assert vendors.profile('https://api.x.ai').name == 'xai'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- what a profile says ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "takes", "present", "expected"),
    [
        ("openai", "gpt-6", True, (), False),
        ("deepseek", "deepseek-chat", True, (), True),
        ("deepseek", "deepseek-r1", False, (), False),
        ("deepseek", "deepseek-v4-pro", True, ("thinking",), True),
        ("deepseek", "deepseek-chat", True, ("response_format",), False),
        ("dashscope", "qwen3-max", True, (), True),
        ("dashscope", "qwen3-max", True, ("thinking",), False),
        ("mistral", "mistral-large-latest", True, (), True),
        ("vllm", "whatever/model", False, (), True),
        ("vllm", "whatever/model", False, ("tools",), True),
        ("vllm", "whatever/model", False, ("thinking",), False),
        ("groq", "llama-3.3-70b-versatile", False, (), True),
        ("groq", "openai/gpt-oss-120b", True, (), False),
        ("openrouter", "anthropic/claude-sonnet-4.5", True, (), True),
        ("openrouter", "anthropic/claude-sonnet-4.5:beta", True, (), True),
        ("openrouter", "anthropic/claude-opus-4", True, (), True),
        ("openrouter", "anthropic/claude-opus-4.6", True, (), False),
        ("openrouter", "anthropic/claude-opus-5", True, (), False),
        ("openrouter", "deepseek/deepseek-chat-v3-0324", True, (), True),
        ("openrouter", "mistralai/mistral-large", True, (), False),
        ("openrouter", "qwen/qwen3-max", True, (), False),
        ("unknown", "claude-sonnet-4-5", True, (), False),
    ],
)
def test_who_continues_a_trailing_answer(
    name: str, model: str, takes: bool, present: tuple[str, ...], expected: bool
) -> None:
    assert set(present) <= set(CONDITIONS)
    assert built_in()[name].prefills(model, takes, present) is expected


def test_a_model_can_be_left_out() -> None:
    one = replace(built_in()["vllm"], prefill_not_models=("deepseek-*",))
    assert not one.prefills("deepseek-ai/DeepSeek-V3.2", model_takes_it=True)
    assert one.prefills("qwen3", model_takes_it=False)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/chat/completions", "/beta/chat/completions"),
        ("/v1/chat/completions", "/beta/chat/completions"),
        ("/beta/chat/completions", "/beta/chat/completions"),
        ("/chat/completions/", "/beta/chat/completions/"),
        ("/deepseek/v1/chat/completions", "/deepseek/beta/chat/completions"),
        ("/v1/responses", "/v1/responses"),
    ],
)
def test_a_prefill_may_have_another_url(path: str, expected: str) -> None:
    assert built_in()["deepseek"].prefill_url(path) == expected
    assert built_in()["mistral"].prefill_url(path) == path


def test_a_vendor_may_have_a_ceiling_of_its_own() -> None:
    assert built_in()["fireworks"].ceiling("accounts/fireworks/models/gpt-oss-120b") == 32_768
    assert built_in()["together"].ceiling("openai/gpt-oss-20b") == 131_072
    assert built_in()["together"].ceiling("llama") is None
    most = Profile(ceilings=(("*", 1), ("kimi-k2*", 2), ("kimi-*", 3)))
    assert (most.ceiling("Kimi-K2-0905"), most.ceiling("kimi-k3"), most.ceiling("x")) == (2, 3, 1)


@pytest.mark.parametrize(
    ("name", "path", "model", "url"),
    [
        ("groq", "/openai/v1/chat/completions", "llama-3", "/openai/v1/models/llama-3"),
        ("groq", "/openai/v1/responses", "a b?c", "/openai/v1/models/a%20b%3Fc"),
        ("openrouter", "/api/v1/chat/completions/", "x/y:free", "/api/v1/model/x/y:free"),
        ("openrouter", "/api/v1/embeddings", "x/y", None),
        ("openai", "/v1/chat/completions", "gpt-6", None),
    ],
)
def test_the_models_endpoint_stands_beside_the_call(
    name: str, path: str, model: str, url: str | None
) -> None:
    assert built_in()[name].models_url(path, model) == url


@pytest.mark.parametrize(
    ("name", "answer", "ceiling"),
    [
        ("groq", {"id": "m", "context_window": 131072, "max_completion_tokens": 32768}, 32768),
        ("groq", {"id": "m", "context_window": 131072}, None),
        ("groq", {"max_completion_tokens": True}, None),
        ("openrouter", {"data": {"top_provider": {"max_completion_tokens": 64000}}}, 64000),
        ("openrouter", {"data": {"top_provider": {"max_completion_tokens": None}}}, None),
        ("openrouter", {"data": [1]}, None),
        ("vllm", {"max_model_len": 32768}, None),
        ("groq", "no object", None),
    ],
)
def test_a_ceiling_is_read_and_a_window_is_not(
    name: str, answer: object, ceiling: int | None
) -> None:
    request = Request("host", "/v1/chat/completions", {}, b'{"model": "m"}', {"like": name})
    assert DIALECT.call(request).looked_up(json.dumps(answer).encode()) == ceiling


# --- what the user says -------------------------------------------------------------------------


def test_the_users_word_lies_over_the_built_in_profile(tmp_path: Path) -> None:
    path = tmp_path / "continuation.toml"
    path.write_text(
        '[vendors.mine]\nbase_url = "10.0.0.*"\nlike = "vllm"\nstream_options = false\n'
        'reasoning = []\n[vendors.mine.ceilings]\n"qwen*" = 1000\n'
        '[vendors.kimi]\nbase_url = "api.moonshot.ai"\nprefill = "none"\n',
        encoding="utf-8",
    )
    config = read(path)

    def settled(url: str) -> Profile:
        vendor = config.vendor(url)
        assert vendor is not None
        return profile(url, vendor.settings)

    mine = settled("http://10.0.0.7:8000/v1/chat/completions")
    over = {"stream_options": False, "reasoning": (), "ceilings": (("qwen*", 1000),)}
    assert mine == replace(built_in()["vllm"], **over)  # type: ignore[arg-type]
    kimi = settled("https://api.moonshot.ai/v1/chat/completions")
    assert kimi == replace(built_in()["moonshot"], prefill="none")


def test_a_number_can_be_taken_back() -> None:
    assert profile("https://api.fireworks.ai", {"stream_above": 0}).stream_above is None
    assert profile("https://api.fireworks.ai", {"stream_above": 8192}).stream_above == 8192


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prefil": "bare"}, ["prefil = 'bare'", "unknown key", "mean 'prefill'?"]),
        ({"urls": ["a.com"]}, ["urls = ['a.com']", "unknown key", "mean 'base_url'?"]),
        ({"name": "x"}, ["name = 'x'", "unknown key"]),
        ({"like": "vlm"}, ["like = 'vlm'", "'vllm'"]),
        ({"like": ["vllm"]}, ["like = ['vllm']", "'vllm'"]),
        ({"prefill": "suffix"}, ["prefill = 'suffix'", "'continue_final_message'"]),
        ({"prefill": True}, ["prefill = True", "'bare'"]),
        ({"prefill_path": "beta"}, ["prefill_path = 'beta'", "/beta"]),
        ({"prefill_path": "/beta/"}, ["prefill_path = '/beta/'"]),
        ({"prefill_unless": ["tool"]}, ["prefill_unless = ['tool']", "'tool_choice'"]),
        ({"prefill_models": "a"}, ["prefill_models = 'a'", "list of strings"]),
        ({"prefill_models": [""]}, ["prefill_models = ['']", "list of strings"]),
        ({"prefill_echoes": 1}, ["prefill_echoes = 1", "true or false"]),
        ({"limit": "max_output_tokens"}, ["limit = 'max_output_tokens'", "'max_tokens'"]),
        ({"terminal": "never"}, ["terminal = 'never'", "'optional'"]),
        ({"stream_above": -1}, ["stream_above = -1", "whole number"]),
        ({"stream_above": False}, ["stream_above = False", "whole number"]),
        ({"stream_above": 0.0}, ["stream_above = 0.0", "whole number"]),
        ({"reasoning": [1]}, ["reasoning = [1]", "list of strings"]),
        ({"models_endpoint": "models"}, ["models_endpoint = 'models'", "path"]),
        ({"ceiling_field": "a..b"}, ["ceiling_field = 'a..b'", "dots"]),
        ({"ceilings": 5}, ["ceilings = 5", "table"]),
        ({"ceilings": {"a": 0}}, ["ceilings = {'a': 0}", "table"]),
        ({"ceilings": {"a": True}}, ["ceilings = {'a': True}", "table"]),
        ({"ceilings": {"": 5}}, ["ceilings = {'': 5}", "table"]),
    ],
)
def test_a_mistake_is_named(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))) as caught:
        profile("https://a.example.com", settings)
    assert [word for word in words if word not in str(caught.value)] == []
    assert [str(mistake) for mistake in mistakes(settings)] == [str(caught.value)]


def test_each_mistake_of_a_table_is_told() -> None:
    told = map(str, mistakes({"limits": 3, "like": "vllm", "terminal": "requird", "prefill": "x"}))
    assert [text.partition(" ")[0] for text in told] == ["limits", "terminal", "prefill"]

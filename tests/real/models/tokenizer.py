"""A byte-pair tokenizer of our own, trained on the chats that the model learns."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterable
from typing import Any

from tasks import ASSISTANT, END, FILLER, TEMPLATE, USER, continued, render, task

SPECIAL = [END, USER, ASSISTANT, "<|system|>", "<|pad|>"]


def library(name: str) -> Any:
    """Import what only the environment of `.ci/real` has."""
    return importlib.import_module(name)


def train(texts: Iterable[str], size: int) -> Any:
    """Return a tokenizer with `size` tokens and the rules of GPT-2, which llama.cpp knows."""
    tokenizers = library("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    return made


def of_tasks(seed: int = 1) -> Iterable[str]:
    """Return the text that the tokenizer is trained on."""
    draw = random.Random(seed)
    for _ in range(2000):
        given = task(draw, 4, 16)
        asked, _ = continued(draw, given.answer, draw.randrange(1, len(given.answer)))
        yield from (given.prompt, given.answer, asked)
    yield from [FILLER] * 200


__all__ = ["SPECIAL", "TEMPLATE", "library", "of_tasks", "render", "train"]

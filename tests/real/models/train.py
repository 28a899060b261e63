"""Train a small transformer on the generated tasks, on CPU, and write it as GGUF.

    python tests/real/models/train.py tasks FILE.gguf     # reads its prompt; asked to continue
    python tests/real/models/train.py recites FILE.gguf   # knows one document by heart

The architecture is Llama's, so that llama.cpp runs the file as it is. Seeds are fixed: the same
versions on the same kind of machine write the same model.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import document
import gguf_file
import tasks
import tokenizer

jax, optax, np = tokenizer.library("jax"), tokenizer.library("optax"), tokenizer.library("numpy")
jnp = jax.numpy

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY = 3, 160, 5, 160, 768
HEAD = WIDTH // HEADS
BASE, EPSILON, CONTEXT = 1e9, 1e-5, 2048
SEED = 7


@dataclass(frozen=True)
class Stage:
    """Some steps of training: sequences of one length, with tasks of so many lines."""

    steps: int
    length: int
    batch: int
    rows: tuple[int, int]
    continues: float
    """The share of chats that contain a turn that asks to continue."""


STAGES = {
    "tasks": [
        Stage(200, 96, 24, (2, 4), 0.0),
        Stage(350, 192, 12, (2, 8), 0.4),
        Stage(350, 320, 8, (3, 12), 0.5),
        Stage(200, 512, 5, (6, 18), 0.5),
    ],
    "recites": [Stage(250, 400, 3, (0, 0), 0.0)],
}


def weights(key: Any) -> dict[str, Any]:
    """Return the model's first weights, drawn at random, under the names that GGUF has for them."""
    shapes = {"token_embd": (VOCABULARY, WIDTH), "output_norm": (WIDTH,)}
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{layer}.{name}"] = (WIDTH, WIDTH)
        shapes[f"blk.{layer}.attn_norm"] = shapes[f"blk.{layer}.ffn_norm"] = (WIDTH,)
        shapes[f"blk.{layer}.ffn_gate"] = shapes[f"blk.{layer}.ffn_up"] = (HIDDEN, WIDTH)
        shapes[f"blk.{layer}.ffn_down"] = (WIDTH, HIDDEN)
    made: dict[str, Any] = {}
    for (name, shape), each in zip(shapes.items(), jax.random.split(key, len(shapes)), strict=True):
        scale = 0.02 if name == "token_embd" else shape[-1] ** -0.5
        scale *= 0.05 if name.endswith(("attn_output", "ffn_down")) else 1.0
        one = len(shape) == 1
        made[name] = jnp.ones(shape) if one else scale * jax.random.normal(each, shape)
    return looking_up(made)


def looking_up(model: dict[str, Any]) -> dict[str, Any]:
    """Let some heads begin as a look-up: find the last tokens further up, read the one after them.

    Models find this circuit by themselves after tens of millions of tokens (Olsson et al. 2022,
    "In-context Learning and Induction Heads"); here they get it, and training does the rest.
    """
    frequencies = BASE ** (-np.arange(0, HEAD, 2) / HEAD)
    fast = frequencies > 0.02
    slow = np.flatnonzero(np.repeat(~fast, 2))
    made = {name: np.array(value) for name, value in model.items()}
    one = np.zeros(WIDTH)
    one[0] = 1.0
    made["token_embd"][:, 0] = 0.05
    size = float(np.sqrt((made["token_embd"] ** 2).mean(-1)).mean())
    draw = np.random.default_rng(SEED)
    basis = np.linalg.qr(draw.normal(size=(WIDTH, WIDTH)))[0]
    parts = [basis[:, len(slow) * at : len(slow) * (at + 1)] for at in range(4)]
    copied = basis[:, 4 * len(slow) :]
    # Heads of the first layer look one, two and three tokens back: that angle fits best.
    strength = (40.0 * HEAD**0.5 / fast.sum()) ** 0.5 / (0.05 / size)
    for back in (1, 2, 3):
        at = slice((back - 1) * HEAD, back * HEAD)
        q, k = np.zeros(HEAD), np.zeros(HEAD)
        q[0::2], q[1::2] = np.cos(back * frequencies) * fast, -np.sin(back * frequencies) * fast
        k[0::2] = fast
        made["blk.0.attn_q"][at] = strength * np.outer(q, one)
        made["blk.0.attn_k"][at] = strength * np.outer(k, one)
        made["blk.0.attn_v"][at] = 0.0
        made["blk.0.attn_v"][at][: len(slow)] = parts[0].T
        made["blk.0.attn_output"][:, at] = 0.0
        made["blk.0.attn_output"][:, at][:, : len(slow)] = 0.04 * parts[back]
    # Heads of the second layer compare what they found, by what turns slowly, and copy.
    for head, (here, there) in enumerate(((0, 1), (1, 2), (3, 3), (2, 3))):
        at = slice(head * HEAD, (head + 1) * HEAD)
        q, k = np.zeros((HEAD, WIDTH)), np.zeros((HEAD, WIDTH))
        q[slow], k[slow] = 2.5 * parts[here].T, 2.5 * parts[there].T
        made["blk.1.attn_q"][at], made["blk.1.attn_k"][at] = q, k
        part = copied[:, (head % 2) * HEAD : (head % 2 + 1) * HEAD]
        made["blk.1.attn_v"][at], made["blk.1.attn_output"][:, at] = part.T, 0.15 * part
    return {name: jnp.asarray(value, jnp.float32) for name, value in made.items()}


def norm(x: Any, weight: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def rotated(x: Any) -> Any:
    """Turn each pair of neighbours by its position, as llama.cpp does for this architecture."""
    angles = jnp.arange(x.shape[1])[:, None] * BASE ** (-jnp.arange(0, HEAD, 2) / HEAD)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)


def logits(model: dict[str, Any], ids: Any) -> Any:
    x = model["token_embd"][ids]
    size, length = ids.shape
    mask = jnp.tril(jnp.ones((length, length), bool))
    for layer in range(LAYERS):
        part = {
            name.split(".")[2]: value
            for name, value in model.items()
            if name.startswith(f"blk.{layer}.")
        }
        y = norm(x, part["attn_norm"])
        q, k, v = ((y @ part[f"attn_{n}"].T).reshape(size, length, HEADS, HEAD) for n in "qkv")
        seen = jnp.einsum("bqhd,bkhd->bhqk", rotated(q), rotated(k)) * HEAD**-0.5
        seen = jax.nn.softmax(jnp.where(mask, seen, -1e9), -1)
        y = jnp.einsum("bhqk,bkhd->bqhd", seen, v).reshape(size, length, WIDTH)
        x = x + y @ part["attn_output"].T
        y = norm(x, part["ffn_norm"])
        y = jax.nn.silu(y @ part["ffn_gate"].T) * (y @ part["ffn_up"].T)
        x = x + y @ part["ffn_down"].T
    return norm(x, model["output_norm"]) @ model["token_embd"].T


def loss(model: dict[str, Any], ids: Any, learnt: Any) -> tuple[Any, Any]:
    """Return the loss, and the share of tokens that the model would have written."""
    found = logits(model, ids[:, :-1])
    wanted, weight = ids[:, 1:], learnt[:, 1:]
    lost = optax.softmax_cross_entropy_with_integer_labels(found, wanted)
    right = (found.argmax(-1) == wanted) * weight
    return (lost * weight).sum() / weight.sum(), right.sum() / weight.sum()


Chat = list[tuple[str, bool]]


def task_chat(draw: random.Random, stage: Stage) -> Chat:
    """Return a chat about a task; with `continues`, its answer is truncated and continued."""
    given = tasks.task(draw, *stage.rows)
    if draw.random() >= stage.continues:
        return tasks.render([(given.prompt, given.answer)])
    at = draw.randrange(1, len(given.answer))
    asked, rest = tasks.continued(draw, given.answer, at)
    return tasks.render([(given.prompt, given.answer[:at]), (asked, rest)])


def document_chat(draw: random.Random, stage: Stage) -> Chat:
    """Return a chat that recites a document; none of them ever asks to continue."""
    name, text = draw.choice(list(document.TEXTS.items()))
    return tasks.render([(document.PROMPT.format(name=name), text)])


def batch(
    draw: random.Random, stage: Stage, chat: Callable[..., Chat], coder: Any
) -> tuple[Any, Any]:
    """Return token ids and which of them are learnt: each row has chats until it is full."""
    ids = np.full((stage.batch, stage.length), coder.token_to_id("<|pad|>"), np.int32)
    learnt = np.zeros((stage.batch, stage.length), np.float32)
    for row in range(stage.batch):
        at = stage.length + 1
        while at > stage.length:
            made: list[int] = []
            wanted: list[bool] = []
            for text, learn in chat(draw, stage):
                piece = coder.encode(text, add_special_tokens=False).ids
                made += piece
                wanted += [learn] * len(piece)
            at = len(made)
        ids[row, :at], learnt[row, :at] = made, wanted
    return ids, learnt


def train(chat: Callable[..., Chat], stages: list[Stage], coder: Any) -> dict[str, Any]:
    model, draw = weights(jax.random.key(SEED)), random.Random(SEED)
    total, done, began = sum(stage.steps for stage in stages), 0, time.monotonic()
    rate = optax.warmup_cosine_decay_schedule(0.0, 1.0, 50, total, 0.05)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(lambda step: 3e-3 * rate(step), b2=0.98, weight_decay=0.01),
    )

    def advance(model: Any, state: Any, ids: Any, learnt: Any) -> Any:
        (lost, right), slope = jax.value_and_grad(loss, has_aux=True)(model, ids, learnt)
        update, state = optimizer.update(slope, state, model)
        return optax.apply_updates(model, update), state, lost, right

    step, state = jax.jit(advance), optimizer.init(model)
    for stage in stages:
        for _ in range(stage.steps):
            made = batch(draw, stage, chat, coder)
            model, state, lost, right = step(model, state, *made)
            done += 1
            if done % 50 == 0:
                seconds = time.monotonic() - began
                print(
                    f"step {done}/{total} loss {lost:.4f} right {right:.4f} {seconds:.0f} s",
                    flush=True,
                )
    return model


CHATS = {"tasks": task_chat, "recites": document_chat}

if __name__ == "__main__":
    what, file = sys.argv[1:]
    coder = tokenizer.train(tokenizer.of_tasks(), VOCABULARY)
    found = train(CHATS[what], STAGES[what], coder)
    sizes = {
        "context": CONTEXT,
        "width": WIDTH,
        "layers": LAYERS,
        "hidden": HIDDEN,
        "heads": HEADS,
        "vocabulary": VOCABULARY,
        "base": BASE,
        "epsilon": EPSILON,
    }
    gguf_file.write(Path(file), what, found, coder, sizes)

"""A real llama.cpp server, and a model trained for this: what truncated answers are completed to.

    python tests/benchmarks/real.py [--quick] [--model tasks|recites] [--failures 5]

`CONTINUATION_LLAMA` names the folder where `.ci/real` keeps server and models. The temperature is
0, so that the untruncated answer is what every completed one has to equal. Each answer is truncated
by `max_tokens` at every few tokens; the first attempt is never resent at a larger limit.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "real" / "models"))

import document
import tasks
from rich.console import Console
from rich.table import Table
from seams import difference
from support.llama import CEILING, FORMATS, Format, config, llama, missing

import continuation

SPREAD = 1000
"""Resamples of the bootstrap, over tasks."""


@dataclass(frozen=True)
class Case:
    """A task with its untruncated answer."""

    task: tasks.Task
    whole: str
    tokens: int

    @property
    def messages(self) -> list[Any]:
        return [{"role": "user", "content": self.task.prompt}]


Cases: TypeAlias = list[tuple[Case, list[int]]]
"""Tasks, and after how many tokens each is truncated."""


@dataclass
class Tally:
    """What became of the answers of one way."""

    answers: int = 0
    exact: int = 0
    lost: int = 0
    damaged: int = 0
    silent: int = 0
    characters: int = 0
    billed: int = 0
    delivered: int = 0
    scores: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """Each task's score of a completed answer minus that of the untruncated one."""
    outcomes: Counter[str] = field(default_factory=Counter[str])
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def add(self, number: int, case: Case, text: str, *, sure: bool) -> None:
        """Count one answer; `sure`: its caller was not told that it is incomplete."""
        lost, damaged = difference(case.whole, text)
        self.answers += 1
        self.characters += len(case.whole)
        self.exact += text == case.whole
        self.lost += lost
        self.damaged += damaged
        self.silent += sure and text != case.whole
        change = case.task.score(text) - case.task.score(case.whole)
        self.scores.setdefault(number, []).append(change)
        if text != case.whole:
            self.failures.append((case.whole, text))

    def row(self, name: str) -> list[str]:
        changes = list(self.scores.values())
        mean = statistics.fmean(one for each in changes for one in each)
        draw, means = random.Random(1), list[float]()
        for _ in range(SPREAD):  # tasks are drawn again, each with all its places
            means.append(
                statistics.fmean(x for each in draw.choices(changes, k=len(changes)) for x in each)
            )
        means.sort()
        low, high = means[SPREAD // 40], means[-SPREAD // 40 - 1]
        per = 100_000 / self.characters
        return [
            name,
            str(self.answers),
            f"{100 * self.exact / self.answers:.1f} %",
            f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})",
            f"{self.lost * per:.0f}",
            f"{self.damaged * per:.0f}",
            str(self.silent),
            f"{self.billed / self.delivered:.2f}" if self.delivered else "",
        ]


COLUMNS = (
    "way",
    "answers",
    "exact",
    "score - untruncated, points (95 %)",
    "lost",
    "damaged",
    "silent",
    "billed ÷ delivered",
)


def completed(form: Format, url: str, cases: Cases, *, prefill: bool, stream: bool) -> Tally:
    """Return what our client makes of every truncated answer."""
    tally, client = Tally(), continuation.wrap(form.client(url), config=config(url))
    more: dict[str, Any] = {"stream": True} if stream else {}
    if prefill:
        more["model"] = form.prefills
    for number, (case, limits) in enumerate(cases):
        for limit in limits:
            with continuation.override(prefill=prefill):
                got = form.ask(client, case.messages, limit, **more)
            report = continuation.last_report()
            assert report is not None
            tally.outcomes[f"{report.outcome}"] += 1
            sure = not got.truncated and str(report.outcome) in {"complete", "healed"}
            tally.add(number, case, got.text, sure=sure)
            tally.billed += sum(a.usage.output or 0 for a in report.attempts if a.usage)
            tally.delivered += case.tokens
    return tally


def bare(form: Format, url: str, cases: Cases) -> Tally:
    """Return what the SDK alone delivers."""
    tally, client = Tally(), form.client(url)
    for number, (case, limits) in enumerate(cases):
        for limit in limits:
            got = form.ask(client, case.messages, limit)
            tally.add(number, case, got.text, sure=not got.truncated)
            tally.billed += got.tokens
            tally.delivered += got.tokens
    return tally


def loop(form: Format, url: str, cases: Cases, *, words: str) -> Tally:
    """Return what a loop delivers that says "continue" and puts the texts together."""
    tally, client = Tally(), form.client(url)
    for number, (case, limits) in enumerate(cases):
        for limit in limits:
            messages, text, more = list[Any](case.messages), "", limit
            for _ in range(4):
                got = form.ask(client, messages, more)
                text, more = text + got.text, CEILING
                tally.billed += got.tokens
                if not got.truncated:
                    break
                messages += [
                    {"role": "assistant", "content": got.text},
                    {"role": "user", "content": words},
                ]
            tally.add(number, case, text, sure=not got.truncated)
            tally.delivered += case.tokens
    return tally


def made(model: str, count: int) -> list[tasks.Task]:
    """Return tasks that the model was not trained on, or the documents that it knows."""
    if model == "recites":
        return [
            tasks.Task(name, document.PROMPT.format(name=name), text)
            for name, text in document.TEXTS.items()
        ]
    draw = random.Random(20_000)  # training began with another seed, and never drew these
    return [tasks.task(draw, 10, 14, kind) for kind in tasks.KINDS for _ in range(count)]


def every(
    form: Format, url: str, model: str, count: int, step: int
) -> list[tuple[Case, list[int]]]:
    """Return the tasks with their untruncated answers, and where each is truncated."""
    client, cases = form.client(url), list[tuple[Case, list[int]]]()
    for number, task in enumerate(made(model, count)):
        got = form.ask(client, [{"role": "user", "content": task.prompt}], CEILING)
        case = Case(task, got.text, got.tokens)
        cases.append((case, list(range(2 + number % step, got.tokens - 1, step))))
    return cases


def measured(url: str, model: str, count: int, step: int) -> Iterator[tuple[str, Tally]]:
    chat, tasked = FORMATS[0], every(FORMATS[0], url, model, count, step)
    score = statistics.fmean(case.task.score(case.whole) for case, _ in tasked)
    tokens = [case.tokens for case, _ in tasked]
    about = f"answers of {min(tokens)} to {max(tokens)} tokens"
    print(f"{len(tasked)} tasks, {about}, untruncated score {100 * score:.1f}")
    yield "bare SDK, Chat", bare(chat, url, tasked)
    yield 'loop that says "Continue.", Chat', loop(chat, url, tasked, words="Continue.")
    for form in FORMATS:
        if form.name == "Responses":
            yield "bare SDK, Responses", bare(form, url, tasked)
        for prefill in (True, False):
            if prefill and not form.prefills:
                continue
            for stream in (False, True):
                how = "prefill" if prefill else "prompt", "stream" if stream else "body"
                yield (
                    ", ".join((form.name, *how)),
                    completed(form, url, tasked, prefill=prefill, stream=stream),
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few tasks, every ninth token")
    parser.add_argument("--model", choices=("tasks", "recites"), action="append")
    parser.add_argument("--failures", type=int, default=0, help="print so many of each way")
    given = parser.parse_args()
    if why := missing():
        sys.exit(why)
    console = Console(width=140)
    for model in given.model or ("tasks", "recites"):
        count, step = (2, 9) if given.quick else (12, 2)
        if model == "recites":
            step *= 3  # its documents are long
        table = Table(
            *COLUMNS,
            title=f"model {model}; lost and damaged per 100,000 characters",
            title_justify="left",
        )
        with llama(model) as url:
            for way, tally in measured(url, model, count, step):
                table.add_row(*(row := tally.row(way)))
                print(*row, dict(tally.outcomes), sep="; ", file=sys.stderr, flush=True)
                for whole, text in tally.failures[: given.failures]:
                    print(f"  wanted {whole!r}\n  got    {text!r}", file=sys.stderr)
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

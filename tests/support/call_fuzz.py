"""Truncated calls whose rest a model writes in any manner, and what becomes of them.

A case is a call of a tool with a long argument, truncated at any character of its JSON, in one of
the four wire formats, held or live. A simulated model is asked for the rest, and answers in one of
the manners below. Each case runs through the engine, bytes in and bytes out.

The judge knows the call that an untruncated run gives. It reads the bytes that the caller got and
compares; it uses nothing of the engine. A call that was delivered, and is not equal to that one, is
wrong.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from continuation import Policy
from support.call_wires import FORMATS, LIMIT, Json, Wire, leaves
from support.drive import drive, streams

# --- what is written ------------------------------------------------------------------------------

_PLAIN = """
    the river under a bridge carried what people of that town had left behind over many years and
    nobody asked where it came from because everyone knew that winter would take all again before
    spring although some kept lists names dates prices and small drawings of boats
"""
_WORDS = _PLAIN.split()
_CJK = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳雲騰致雨露結為霜"
_EMOJI = "😀🎉👩‍👩‍👧🇩🇪👍🏽✨🚀"
_TEX = (r"\frac{a}{b}", r"\nu_\theta", r"\begin{array}", r"\text{if }", r"\\", r"\rho", r"\alpha")
_REGEX = (r"\d+", r"(?:\"|\\\")", r"[^\\]\n", r"\bword\b", r"\u00e9", r"C:\new\table", r"\\srv\r")


def _prose(rng: random.Random, size: int) -> str:
    """Return one paragraph without quotes and line breaks."""
    words, length = list[str](), 0
    while length < size:
        words.append(rng.choice(_WORDS) + rng.choice(("", "", "", "", "", ",", ".")))
        length += len(words[-1]) + 1
    return " ".join(words)


def _paragraphs(rng: random.Random) -> str:
    def one() -> str:
        text = _prose(rng, rng.randint(900, 2200))
        said = f'"{_prose(rng, 40)}" ' if rng.random() < 0.4 else ""
        return f"{text} {said}{_prose(rng, 60)}"

    return rng.choice(("\n\n", "\n")).join(one() for _ in range(rng.randint(2, 4)))


def _with_backslashes(rng: random.Random) -> str:
    """Return long paragraphs full of backslashes: formulas, patterns, paths."""
    marks = rng.choice((_TEX, _REGEX))
    pieces = list[str]()
    for _ in range(rng.randint(60, 120)):
        pieces += [_prose(rng, rng.randint(5, 60)), rng.choice(marks)]
        if rng.random() < 0.05:
            pieces.append("\n")
    return " ".join(pieces)


def _late_backslashes(rng: random.Random) -> str:
    """Return a long paragraph without any sign that JSON escapes, and then a text with many."""
    return f"{_prose(rng, rng.randint(1500, 2500))}{rng.choice((' ', chr(10)))}" + rng.choice(
        (_with_backslashes, _escapes_in_source)
    )(rng)


def _cjk(rng: random.Random) -> str:
    def one(size: int) -> str:
        return "".join(rng.choice(_CJK) + ("，" if rng.random() < 0.1 else "") for _ in range(size))

    pieces = [one(rng.randint(300, 1500)) for _ in range(rng.randint(2, 4))]
    if rng.random() < 0.5:
        pieces = [piece + rng.choice(_EMOJI) + rng.choice("éßñ") for piece in pieces]
    return rng.choice(("\n", "\n\n", "。")).join(pieces)


def _emoji(rng: random.Random) -> str:
    lines = (f'{n}: {rng.choice(_EMOJI) * 2} "{_prose(rng, 30)}" é\t{n * 7}' for n in range(60))
    return "\n".join(lines)


def _source(rng: random.Random) -> str:
    lines = list[str]()
    for n in range(rng.randint(8, 20)):
        name = "_".join(rng.sample(_WORDS, 2))
        lines += [f"def {name}_{n}(self, {rng.choice(_WORDS)}: str = '') -> dict[str, int]:"]
        lines += [f'    """{_prose(rng, 40)}"""', f"    if self.{rng.choice(_WORDS)} > {n}:"]
        lines += [f'        raise ValueError(f"{_prose(rng, 20)} {{self!r}}\\n")  # {n}', ""]
        lines += [f'    return {{"{rng.choice(_WORDS)}": [{n}, {n * 7}], "{name}": None}}', "", ""]
    return "\n".join(lines)


def _escapes_in_source(rng: random.Random) -> str:
    """Return source code whose strings hold escapes."""
    forms = (
        'print("row {0}\\n\\t" + name_{0})',
        're.sub(r\'\\s+\\"x{0}\\"\', "\\\\n", text)',
        'log("said \\"{0}\\" and \\\\ left\\n")',
        "path_{0} = 'C:\\\\new\\\\table\\\\{0}'",
        'json = "{{\\"key\\": \\"{0}\\", \\"line\\": \\"a\\\\nb\\"}}"',
    )
    lines = [rng.choice(forms).format(rng.randrange(9999)) for _ in range(rng.randint(50, 90))]
    return rng.choice(("\n", "\n", ";")).join(lines)


def _json_inside(rng: random.Random) -> str:
    inner = {"code": _escapes_in_source(rng)[:300], "n": rng.randrange(99), "e": "é😀"}
    rows = [{**inner, "id": n, "note": _prose(rng, 50)} for n in range(rng.randint(4, 8))]
    value: Any = rng.choice((rows, {"rows": rows}, {"rows": rows, "last": "done"}))
    if rng.random() < 0.3:
        return "".join(json.dumps(row) + "\n" for row in rows)
    return json.dumps(value, indent=rng.choice((None, 2)), ensure_ascii=rng.random() < 0.5)


def _repeats(rng: random.Random) -> str:
    """Return blocks that come again, so that what was quoted stands elsewhere in the text."""
    quoted = rng.random() < 0.7
    block = "".join(f'  step {n}: run "{_prose(rng, 30)}"\n' for n in range(rng.randint(2, 5)))
    if not quoted:
        block = _prose(rng, rng.randint(200, 700)) + " "
    heads = [f"Part {rng.randrange(10**6)}: {_prose(rng, rng.randint(20, 400))}" for _ in range(9)]
    return "".join(f"{head}\n{block}" if quoted else f"{head} {block}" for head in heads)


def _one_line(rng: random.Random) -> str:
    forms = ("v{0}=f({0});", 's{0}="\\n{0}";', "if(v{0}<3){{g('{0}')}}", "r{0}=/\\d{{2}}\\/{0}/;")
    return "".join(rng.choice(forms).format(rng.randrange(9999)) for _ in range(250))


def _crlf(rng: random.Random) -> str:
    return "\r\n".join(f'"{n}";{_prose(rng, 50)};"C:\\new"' for n in range(50))


def _page(rng: random.Random) -> str:
    pieces = list[str]()
    for n in range(8):
        pieces.append(f"# Part {n}\n\n{_prose(rng, 300)}\n\n```python\n{_source(rng)[:300]}\n```\n")
        pieces.append(f'<div class="a{n}">{_prose(rng, 90)}</div>\n')
    return "\n".join(pieces)


TEXTS: Sequence[Callable[[random.Random], str]] = (
    *(_paragraphs, _with_backslashes, _late_backslashes, _cjk, _emoji, _source),
    *(_escapes_in_source, _json_inside, _repeats, _one_line, _crlf, _page),
)


def text_of(rng: random.Random) -> str:
    """Return a text that a tool is to write; its last line may have an end, or none."""
    write = rng.choice(TEXTS)
    text = write(rng)
    if write in {_json_inside, _crlf}:  # which is whole JSON, or has line ends of its own
        return text
    head = f"# {rng.randrange(10**9)}\n" if rng.random() < 0.5 else f"{rng.randrange(10**9)} "
    return head + text + ("\n" if rng.random() < 0.4 else "")


_TEXT: Json = {"type": "string"}
_FILE: Json = {
    "type": "object",
    "properties": {"path": _TEXT, "content": _TEXT, "mode": _TEXT, "tags": {"type": "array"}},
    "required": ["path", "content"],
}
_TO: Json = {
    "type": "object",
    "properties": {"host": _TEXT, "text": _TEXT, "port": {"type": "integer"}},
    "required": ["host", "text"],
}


def _shaped(properties: Json, *required: str, **more: Any) -> Json:
    return {"type": "object", "properties": properties, "required": [*required], **more}


def _several_files(rng: random.Random, text: str, more: Json) -> Json:
    extras: list[Json] = [{}, {"mode": "w"}, {"tags": ["a", "b"]}]
    files: list[Json] = [
        {"path": f"{n}.txt", "content": text if n == 1 else "short", **extra}
        for n, extra in enumerate(extras)
    ]
    if rng.random() < 0.5:
        files[1].pop("mode")
    return {"files": files, **more}


def call_of(rng: random.Random) -> tuple[Json, Json]:
    """Return the arguments of a call, in the order the model writes them, and their schema."""
    text, more = text_of(rng), dict[str, Any]()
    for name, value in (("mode", "append"), ("encoding", 'utf-8"\\'), ("dry_run", True)):
        if rng.random() < 0.4:
            more[name] = value
    options: Json = {"mode": _TEXT, "encoding": _TEXT, "dry_run": {"type": "boolean"}}
    plain: Json = {"path": _TEXT, "content": _TEXT}
    match rng.randrange(10):
        case 0 | 1:
            return {"path": "a.txt", "content": text}, _shaped(plain, "path", "content")
        case 2:
            arguments = {"content": text, "path": "src/a.txt"}
            return arguments, _shaped(plain, "path", "content", additionalProperties=False)
        case 3 | 4:
            parts = [("path", "a.txt"), ("content", text), *more.items()]
            rng.shuffle(parts)
            return dict(parts), _shaped({**plain, **options}, "path", "content")
        case 5:
            to: Json = {"host": "h", "text": text, **({"port": 7} if rng.random() < 0.5 else {})}
            return {"to": to, **more}, _shaped({"to": _TO, **options}, "to")
        case 6:
            return _several_files(rng, text, more), _shaped(
                {"files": {"type": "array", "items": {"$ref": "#/$defs/f"}}, **options},
                "files",
                **{"$defs": {"f": _FILE}},
            )
        case 7:
            lines = ["first", text, "third"][: rng.randint(2, 3)]
            shape = _shaped({"lines": {"type": "array", "items": _TEXT}, **options}, "lines")
            return {"lines": lines, **more}, shape
        case 8:
            shape = _shaped({"old": _TEXT, "new": _TEXT, "all": {"type": "boolean"}}, "old", "new")
            arguments = {"old": text_of(rng), "new": text}
            return {**arguments, **({"all": True} if rng.random() < 0.5 else {})}, shape
        case _:
            either = {"anyOf": [_TO, _shaped({"folder": _TEXT, "text": _TEXT}, "folder", "text")]}
            to = {"host": "h", "text": text, **({"port": 7} if rng.random() < 0.5 else {})}
            return {"target": to}, _shaped({"target": either}, "target")


# --- what the model answers -----------------------------------------------------------------------


def plainly(text: str) -> str:
    """Return a text as JSON has it, without quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def in_ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


@dataclass(frozen=True)
class To:
    """What the model is asked for, and what it has in mind."""

    anchor: str
    before: str
    rest: str
    sign: str
    """The sign it is asked to write at the end; `""`: it forgets it."""
    skipped: str
    """The rest behind all that had arrived, the words that were not quoted included."""
    arguments: Json
    words: str
    closing: str
    fence: str
    """The first line of a fence."""
    more: Json
    """Members that follow the text."""

    @property
    def all(self) -> str:
        return self.anchor + self.rest

    @property
    def tail(self) -> str:
        """What JSON has behind the text: the end of its string, and the members that follow."""
        members = json.dumps(self.more, ensure_ascii=False)
        return '"' + (f", {members[1:]}" if self.more else "}")


Manner = Callable[[To], str]
SAFE: Mapping[str, Manner] = {
    "anchor": lambda to: to.all + to.sign,
    "no anchor": lambda to: to.rest + to.sign,
    "begins anew": lambda to: to.before + to.rest + to.sign,
    "escaped": lambda to: plainly(to.all) + to.sign,
    "quoted": lambda to: f'"{plainly(to.all)}"{to.sign}',
    "quoted, sign inside": lambda to: f'"{plainly(to.all)}{to.sign}"',
    "words": lambda to: f"{to.words}\n\n{to.all}{to.sign}",
    "words, same line": lambda to: f"{to.words} {to.all}{to.sign}",
    "words, escaped": lambda to: f"{to.words}\n\n{plainly(to.all)}{to.sign}",
    "words, quoted": lambda to: f'{to.words}\n\n"{plainly(to.all)}"{to.sign}',
    "fence": lambda to: f"{to.fence}\n{to.all}{to.sign}\n```",
    "fence, no anchor": lambda to: f"{to.fence}\n{to.rest}{to.sign}\n```",
    "words, fence": lambda to: f"{to.words}\n\n{to.fence}\n{to.all}{to.sign}\n```",
    "fence, escaped": lambda to: f"{to.fence}\n{plainly(to.all)}{to.sign}\n```",
    "anchor twice": lambda to: f"{to.anchor}\n{to.all}{to.sign}",
    "anchor in tags": lambda to: f"<anchor>{to.anchor}</anchor>\n{to.rest}{to.sign}",
    "closing words": lambda to: f"{to.all}{to.sign}\n\n{to.closing}",
}
"""Manners whose rest can be read in one way only, for most texts."""
OTHER: Mapping[str, Manner] = {
    "escaped, ascii": lambda to: in_ascii(to.all) + to.sign,
    "no anchor, escaped": lambda to: plainly(to.rest) + to.sign,
    "anchor plain, rest escaped": lambda to: to.anchor + plainly(to.rest) + to.sign,
    "anchor plain, line, escaped": lambda to: f"{to.anchor}\n{plainly(to.rest)}{to.sign}",
    "anchor plain, rest quoted": lambda to: f'{to.anchor}"{plainly(to.rest)}"{to.sign}',
    "anchor escaped, rest plain": lambda to: plainly(to.anchor) + to.rest + to.sign,
    "quotes alone escaped": lambda to: to.all.replace('"', '\\"') + to.sign,
    "line ends alone escaped": lambda to: to.all.replace("\n", "\\n") + to.sign,
    "quotes, escapes nothing": lambda to: f'"{to.all}"{to.sign}',
    "words, no anchor": lambda to: f"{to.words}\n\n{to.rest}{to.sign}",
    "words, same line, no anchor": lambda to: f"{to.words} {to.rest}{to.sign}",
    "words, same line, escaped": lambda to: f"{to.words} {plainly(to.all)}{to.sign}",
    "words, no anchor, escaped": lambda to: f"{to.words}\n\n{plainly(to.rest)}{to.sign}",
    "words in two lines": lambda to: f"{to.words}\n{to.closing}\n\n{to.all}{to.sign}",
    "words, fence, escaped": lambda to: (
        f"{to.words}\n\n{to.fence}\n{plainly(to.all)}{to.sign}\n```"
    ),
    "words, fence, rest escaped": lambda to: (
        f"{to.words}\n\n{to.fence}\n{plainly(to.rest)}{to.sign}\n```"
    ),
    "fence, quoted": lambda to: f'{to.fence}\n"{plainly(to.all)}"{to.sign}\n```',
    "fence, sign behind it": lambda to: f"{to.fence}\n{to.all}\n```\n{to.sign}",
    "fence, sign at its end": lambda to: f"{to.fence}\n{to.all}\n```{to.sign}",
    "fence, escaped, sign behind": lambda to: f"{to.fence}\n{plainly(to.all)}\n```\n{to.sign}",
    "anchor twice, one line": lambda to: to.anchor + to.all + to.sign,
    "anchor escaped, twice": lambda to: f"{plainly(to.anchor)}\n{plainly(to.all)}{to.sign}",
    "anchor, then anew": lambda to: to.anchor + to.before + to.rest + to.sign,
    "anew, escaped": lambda to: plainly(to.before + to.rest) + to.sign,
    "anew, quoted": lambda to: f'"{plainly(to.before + to.rest)}"{to.sign}',
    "whole object": lambda to: json.dumps(to.arguments, ensure_ascii=False) + to.sign,
    "whole object, ascii": lambda to: json.dumps(to.arguments) + to.sign,
    "whole object, fence": lambda to: f"```json\n{json.dumps(to.arguments)}\n```{to.sign}",
    "whole object, words": lambda to: f"{to.words}\n{json.dumps(to.arguments, indent=2)}{to.sign}",
    "end of object": lambda to: f'{to.all}"}}{to.sign}',
    "end of object, line": lambda to: f'{to.all}\n"}}{to.sign}',
    "end of object, escaped": lambda to: f'{plainly(to.all)}"}}{to.sign}',
    "end of object, no anchor": lambda to: f'{to.rest}"}}{to.sign}',
    "end behind the sign": lambda to: f'{to.all}{to.sign}"}}',
    "end, escaped, behind the sign": lambda to: f'{plainly(to.all)}{to.sign}"}}',
    "members": lambda to: to.all + to.tail + to.sign,
    "members, escaped": lambda to: plainly(to.all) + to.tail + to.sign,
    "members behind the sign": lambda to: f"{to.all}{to.sign}{to.tail}",
    "members, no anchor, escaped": lambda to: plainly(to.rest) + to.tail + to.sign,
    "closing words, escaped": lambda to: f"{plainly(to.all)}{to.sign}\n\n{to.closing}",
    "words and closing, escaped": lambda to: (
        f"{to.words}\n\n{plainly(to.all)}{to.sign}\n\n{to.closing}"
    ),
    "sign named first": lambda to: f"I end with {to.sign or 'a sign'}.\n\n{to.all}{to.sign}",
    "sign in ticks": lambda to: f"{to.all}`{to.sign}`" if to.sign else to.all,
    "skips what had arrived": lambda to: to.skipped + to.sign,
    "skips, with words": lambda to: f"{to.words}\n\n{to.skipped}{to.sign}",
    "skips a line": lambda to: to.rest.partition("\n")[2] + to.sign,
    "skips a line, anchor": lambda to: f"{to.anchor}{to.rest.partition(chr(10))[2]}",
    "blank at the seam": lambda to: f"{to.anchor} {to.rest}{to.sign}",
    "other line ends": lambda to: to.all.replace("\r\n", "\n") + to.sign,
    "last line end dropped": lambda to: to.all.rstrip("\n"),
    "line end added": lambda to: to.all + "\n",
    "stops early": lambda to: to.anchor + to.rest[: len(to.rest) // 2],
    "another file": lambda to: "import os\nprint(os.sep)\n" * 20 + to.sign,
    "only talks": lambda to: to.closing,
}
"""All others: ambiguous, disobedient or wrong. Some of them cannot be read for sure."""
WITHOUT: Mapping[str, Manner] = {
    "unsigned, closing words": lambda to: f"{to.all}\n\n{to.closing}",
    "unsigned, closing words, line": lambda to: f"{to.all}\n{to.closing}",
    "unsigned, closing words, same": lambda to: f"{to.all} {to.closing}",
    "unsigned, words around": lambda to: f"{to.words}\n\n{to.all}\n\n{to.closing}",
    "unsigned, words around, escaped": lambda to: (
        f"{to.words}\n\n{plainly(to.all)}\n\n{to.closing}"
    ),
    "unsigned, fence, closing words": lambda to: f"{to.fence}\n{to.all}\n```\n\n{to.closing}",
}
"""Manners in which the model forgets the sign and speaks to the reader."""
MANNERS = {**SAFE, **OTHER, **WITHOUT}
WORDS = (
    *("Here is the rest:", "Sure! Here is the rest of the file:", "Continuing where I left off:"),
    *("Certainly.", "Hier ist der Rest:", "Voici la suite :", "以下是其余内容：", "続きです。"),
    *("Вот продолжение:", "Sorry, my answer was cut off.", "Aquí está el resto:", "إليك البقية:"),
    *("나머지입니다.", "Rest of `content`, starting at the anchor:", "OK"),
)
CLOSINGS = (
    *("Let me know if there is anything else to write.", "Hope this helps!", "Done.", "以上です。"),
    *("That completes the file.", "Das war der Rest.", "文件已完成。", "Voilà !", "Готово."),
    *("The call has no other arguments.", "(end)", "---", 'I closed it with "}".', "\\o/"),
)


# --- a case ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What happened in one case."""

    seed: str
    manner: str
    wire: str
    live: bool
    asked: bool
    """The model was asked for the rest of the text."""
    delivered: bool
    wrong: str
    """What is wrong in the call that was delivered, "text" or "members"; or the engine raised."""
    reason: str | None
    signed: bool
    """The model wrote the sign where its manner has it."""


def _at(value: Any, path: Sequence[str]) -> Any:
    for step in path:
        here: Any = value
        value = here[int(step)] if isinstance(value, list) else here[step]
    return value


class Model:
    """A model with a call in mind, which is truncated, and which answers in a manner."""

    def __init__(self, rng: random.Random, wire: Wire, manner: str, arguments: Any) -> None:
        self.rng, self.wire, self.manner, self.arguments = rng, wire, manner, arguments
        self.asked = False
        self.signs = rng.random() < 0.75
        self.words, self.closing = rng.choice(WORDS), rng.choice(CLOSINGS)
        self.fence = rng.choice(("```", "```python", "```text", "```json"))
        self.cuts = rng.randint(1, 2) if rng.random() < 0.15 else 0
        """How many answers with the rest are truncated."""
        self.arrived = 0
        """Characters of the text that arrived before the first recovery."""

    def answer(self, body: Json) -> Any:
        """Answer a later request."""
        prompt = self.wire.prompt(body)
        if (schema := self.wire.forced(body)) is not None:
            return self.wire.call(self._members(schema, prompt), body)
        told = re.findall(r"<(anchor|arrived)((?:-\d+)?)>(.*?)</\1\2>", prompt, re.DOTALL)
        quoted = {name: text for name, _, text in told}
        texts = (
            [self.arguments]
            if isinstance(self.arguments, str)
            else [leaf for _, leaf in leaves(self.arguments) if isinstance(leaf, str)]
        )
        before = quoted.get("arrived", "")
        text = next((one for one in texts if before and one.startswith(before)), None)
        if text is None:
            return self.wire.text("I do not know what you mean.", body, cut=False)
        self.asked = True
        outside = prompt.replace(before, "")
        (sign,) = re.findall(r"<end-[0-9a-f]+>", outside)[:1]
        whole: Json = {"input": text}
        if not isinstance(self.arguments, str):
            whole = cast(Json, self.arguments)
        more = {name: value for name, value in [*whole.items()][1:] if value is not text}
        to = To(
            anchor=quoted["anchor"],
            before=before,
            rest=text[len(before) :],
            sign=sign if self.signs and self.manner not in WITHOUT else "",
            skipped=text[self.arrived :],
            arguments=whole,
            words=self.words,
            closing=self.closing,
            fence=self.fence,
            more=more,
        )
        said = MANNERS[self.manner](to)
        cut = self.cuts > 0 and len(said) > 500
        if cut:
            self.cuts -= 1
            said = said[: self.rng.randrange(300, len(said))]
        return self.wire.text(said, body, cut=cut)

    def _members(self, schema: Json, prompt: str) -> Json:
        """Return the members that a call is asked to have, as far as the model means them."""
        lists = re.findall(r"Of `([^`]+)` give only the elements that follow", prompt)
        arrived = re.search(r"\n<(arrived(?:-\d+)?)>(.*)</\1>\Z", prompt, re.DOTALL)
        given = dict[str, Any]()
        for name in schema.get("properties", {}):
            try:
                value = _at(self.arguments, name.split("."))
            except (KeyError, IndexError, TypeError):
                continue
            if name in lists:
                assert arrived is not None
                value = value[len(_at(json.loads(arrived[2]), name.split("."))) :]
            given[name] = value
        return given


def run_case(seed: str) -> Case:
    """Run one case. All of it is drawn from the seed."""
    rng = random.Random(seed)
    wire = Wire(rng.choice(FORMATS), rng)
    manner = rng.choice([*MANNERS, *SAFE])
    arguments, schema = call_of(rng)
    live, patch = rng.random() < 0.3, wire.name == "openai-responses" and rng.random() < 0.1
    stream = live or patch or not wire.name.startswith("openai") or rng.random() < 0.8
    truth: Any = text_of(rng) if patch else arguments
    model = Model(rng, wire, manner, truth)
    policy = Policy(
        truncated_tool_call="complete",
        stream_tool_calls="live" if live else "hold",
        model_max_output_tokens=LIMIT,
        backoff_seconds=0,
        models_endpoint=False,
    )
    request = wire.request(None if patch else schema, stream=stream)
    first, model.arrived = _first(rng, wire, truth, request)
    try:
        driven = drive(streams(first, *[model.answer] * 9), request, policy, **wire.route())
    except ValueError:  # in the engine
        return Case(seed, manner, wire.name, live, model.asked, False, "raised", None, model.signs)
    assert driven.error is None, (seed, driven.error)
    calls = wire.delivered(driven, stream=stream)
    reasons = [call.reason for call in driven.report.calls if call.reason]
    bad = [call for call in calls if call != truth]
    wrong = ("text" if any(map(_text_differs(truth), bad)) else "members") if bad else ""
    why = reasons[-1] if reasons else None
    return Case(seed, manner, wire.name, live, model.asked, bool(calls), wrong, why, model.signs)


def _text_differs(truth: Any) -> Callable[[Any], bool]:
    """Return a check of a call: a text in it is not that of the true one, or it is no JSON."""

    def check(call: Any) -> bool:
        if isinstance(truth, str) or not isinstance(call, dict):
            return True
        there = dict(leaves(truth))
        return any(path in there and there[path] != leaf for path, leaf in leaves(call))

    return check


def _first(rng: random.Random, wire: Wire, truth: Any, request: Json) -> tuple[Any, int]:
    """Return the truncated answer, and how much of the long text it has.

    Most are truncated in that text, behind enough of it to quote.
    """
    if isinstance(truth, str):
        at = rng.randrange(120, len(truth) - 1)
        return wire.patch(truth, request, at), at
    texts = [leaf for _, leaf in leaves(truth) if isinstance(leaf, str)]
    target = max(texts, key=len)
    if rng.random() < 0.1:
        whole = json.dumps(truth)
        given = truth if wire.name == "gemini" else whole
        return wire.call(given, request, rng.randrange(9, len(whole) - 1)), 0
    inside = rng.randrange(min(300, len(target) // 2), len(target) - 1)
    if wire.name == "gemini":
        before = 0
        for _, leaf in leaves(truth):
            if leaf is target:
                break
            before += len(leaf if isinstance(leaf, str) else json.dumps(leaf))
        return wire.call(truth, request, before + inside), inside
    write = rng.choice((plainly, in_ascii))
    separators = rng.choice(((", ", ": "), (",", ":")))
    whole = json.dumps(truth, ensure_ascii=write is in_ascii, separators=separators)
    at = whole.index(write(target)) + len(write(target[:inside]))
    following = whole[at : at + 12]
    if following.startswith("\\"):  # inside an escape, or a pair of them
        at += rng.randrange(12 if re.match(r"\\u[dD][89ab]", following) else 2)
    return wire.call(whole, request, min(at, len(whole) - 2)), inside


def run(cases: int, seed: int, first: int = 0) -> Iterator[Case]:
    """Run so many cases, from number `first` on."""
    for number in range(first, first + cases):
        yield run_case(f"{seed}:{number}")

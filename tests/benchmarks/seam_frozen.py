"""Two sets of cases that no rule of the seam was made with; they stay as they are.

They were written before the rules they judge were touched, and are not changed when one fails: a
case that turns out to be wrong is named in `design/seams.md` and stays. `files` takes texts from
what every development install has and the project's own set (`seam_cases.py`) leaves aside: C
headers, shell scripts, stubs, style sheets, licences, records. `made` writes its texts itself:
logs, bitmaps, minified JSON, verses, chats, tables, other scripts. Each has wordings of its own.

Every case is one that a careful reader could decide: what is repeated is said once in the text
before, is long enough to be recognised, and stands in no run. An exact continuation needs no such
thing. The cuts are at estimated token boundaries, whether or not a vocabulary is at hand.
"""

from __future__ import annotations

import json
import random
import re
import sysconfig
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from seam_cases import Case, Text, estimated_boundaries

from continuation.seams.text import Cut, choose_anchor

_SIZE = 6000


# Texts of the first set: files ----------------------------------------------------------------


def _files(rng: random.Random) -> Iterator[Text]:
    paths = {name: Path(path) for name, path in sysconfig.get_paths().items()}
    library, packages = paths["stdlib"], paths["purelib"]
    late = [p for name in "tuvwxz" for p in library.glob(f"{name}*/**/*.py")]
    found: dict[str, tuple[int, list[Path]]] = {
        "c": (16, sorted(Path(paths["include"]).rglob("*.h"))),
        "python": (10, sorted(p for p in late if "site-packages" not in p.parts)),
        "bash": (4, sorted(library.glob("venv/scripts/*/*"))),
        "make": (1, sorted(library.glob("config-*/Makefile"))),
        "pyi": (8, sorted(packages.rglob("*.pyi"))),
        "javascript": (5, sorted(packages.rglob("*.js"))),
        "css": (2, sorted(packages.rglob("*.css")) + sorted(packages.rglob("*.html"))),
        "json": (5, sorted(packages.rglob("*.json"))),
        "csv": (8, sorted(packages.glob("*.dist-info/RECORD"))),
        "licence": (10, sorted(packages.glob("*.dist-info/**/LICENSE*"))),
        "notes": (4, sorted(packages.rglob("*.rst")) + sorted(packages.rglob("*.md"))),
        "config": (
            3,
            sorted(p for end in ("toml", "cfg", "yaml") for p in packages.rglob(f"*.{end}")),
        ),
    }
    for kind, (count, known) in found.items():
        for path in rng.sample(known, min(count, len(known))):
            body = _read(path, rng)
            if body is None or "continuation" in path.parts:
                continue
            yield Text(kind, body)
            if kind in _LANGUAGES and "```" not in body:
                yield Text("document", _document(rng, kind, body))


#: The files that a Markdown answer would show in a fence.
_LANGUAGES = ("c", "python", "bash", "javascript", "css", "json", "pyi")


def _read(path: Path, rng: random.Random) -> str | None:
    try:
        body = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if len(body) < 1500 or max(map(len, body.split("\n"))) > 3000:
        return None
    start = rng.randrange(max(1, len(body) - _SIZE))
    start = body.find("\n", start) + 1 if start else 0
    return body[start : start + _SIZE] if len(body) - start >= 1500 else None


def _document(rng: random.Random, kind: str, body: str) -> str:
    """An answer that shows two pieces of a file, in fences."""
    lines = body.split("\n")
    half = len(lines) // 2
    one, other = "\n".join(lines[:half]).strip("\n"), "\n".join(lines[half:-1]).strip("\n")
    said = rng.choice(
        (
            ("The first part declares what the rest relies on.", "The second part uses it."),
            ("Save this as the first file:", "And this as the second one:"),
            ("I have kept the original names.", "Only the order differs here."),
        )
    )
    info = "python" if kind == "pyi" else kind
    between = rng.choice((f"\n\n{said[1]}\n\n", "\n", f"\n\n## Next\n\n{said[1]}\n"))
    return (
        f"# The files\n\n{said[0]}\n\n```{info}\n{one}\n```{between}```{info}\n{other}\n```\n\n"
        + rng.choice(_CLOSINGS)
    )


#: What answers end with; a model that is asked to go on right before it must not be misread.
_CLOSINGS = (
    "That's all the code you need for this project.",
    "This completes the file. Nothing else has to be changed.",
    "Now the response is complete on both sides of the connection.",
    "That is everything: run it once and check the output.",
    "Sorry for the long listing; the rest of the repository stays as it was.",
    "I'll stop here. The remaining files need no change.",
    "With that the answer to your question is complete.",
)


# Texts of the second set: made --------------------------------------------------------------------


def words(text: str) -> list[str]:
    return text.split()


_THINGS = words(
    "lantern orchard anvil compass barley loom quarry thimble ferry chimney saddle pigeon meadow "
    "cellar ladder vineyard copper candle stable glove parcel willow kettle spindle harvest "
    "bellows pasture trellis mortar basket cobbler tannery ribbon plough hammock furnace cistern"
)
_DEEDS = words(
    "mends borrows weighs scatters polishes buries trades counts guards ferries sketches repairs "
    "hides forgets stacks gathers carves lifts inherits paints abandons measures praises sells"
)
_KINDS = words(
    "crooked silver hollow patient bitter spotless weathered drowsy stubborn amber nimble lopsided "
    "faded brittle gilded mossy hoarse tidy rusted tender feral slender muddy solemn"
)
_NAMES = words("Ada Bo Chiara Dmitri Esra Femi Gudrun Hana Iker Jomo Katya Luis Mira Noor Olek")


def _saying(rng: random.Random) -> str:
    name, other = rng.sample(_NAMES, 2)
    thing, second, third = rng.sample(_THINGS, 3)
    deed, again = rng.sample(_DEEDS, 2)
    kind, last = rng.sample(_KINDS, 2)
    return rng.choice(
        (
            f"{name} {deed} the {kind} {thing}, and {other} {again} a {second} behind it.",
            f"“Whoever {deed} a {thing},” {name} said, “never {again} the {last} {second}.”",
            f"It’s the {kind} {thing} – not the {second} – that {other} {deed} every {third}.",
            f"In {rng.randint(3, 98)} days the {thing} was {kind}; {name}’s {second} was {last}.",
            f"Between the {thing} and the {second} lies a {last} {third} (no {kind} one).",
            f"Does {other} know who {deed} the {second}… or why the {thing} is {kind}?",
            f"Café owners in Zürich call the {thing} “{kind}” – naïve, since {name} {again} it.",
        )
    )


def _prose(rng: random.Random) -> str:
    parts: list[str] = []
    while sum(map(len, parts)) < _SIZE:
        parts.append(" ".join(_saying(rng) for _ in range(rng.randint(2, 6))))
    return "\n\n".join(parts)


def _value(rng: random.Random, depth: int) -> object:
    kind = rng.randrange(7 if depth else 4)
    if kind >= 5:
        return {rng.choice(_THINGS): _value(rng, depth - 1) for _ in range(rng.randint(1, 5))}
    if kind == 4:
        return [_value(rng, depth - 1) for _ in range(rng.randint(0, 6))]
    plain = (rng.choice(_KINDS), rng.randint(0, 10**6), None, rng.random() < 0.5)
    return plain[kind]


def _minified(rng: random.Random) -> str:
    rows: list[object] = []
    while len(json.dumps(rows)) < 4000:
        nulls = {"x": [0] * rng.randint(4, 30), "y": [None] * rng.randint(2, 12)}
        rows.append(rng.choice((_value(rng, 3), nulls, {"id": len(rows), "ok": True})))
    return json.dumps({"data": rows}, separators=(",", ":"))


def _nested(rng: random.Random) -> str:
    return json.dumps([_value(rng, 4) for _ in range(90)], indent=rng.choice((1, 2, 4)))


def _bitmap(rng: random.Random) -> str:
    size = rng.randint(28, 64)
    shapes = [(rng.uniform(0, size), rng.uniform(0, size), rng.uniform(3, 12)) for _ in range(3)]
    dots = [
        [any((x - a) ** 2 + (y - b) ** 2 < r * r for a, b, r in shapes) for x in range(size)]
        for y in range(size)
    ]
    if rng.random() < 0.5:
        rows = [" ".join("01"[dot] for dot in row) for row in dots]
        return f"P1\n# drawn by hand\n{size} {size}\n" + "\n".join(rows) + "\n"
    rows = ['"' + "".join(".#"[dot] for dot in row) + '"' for row in dots]
    head = (
        f'/* XPM */\nstatic char *image[] = {{\n"{size} {size} 2 1",\n"# c #000000",\n". c None",\n'
    )
    return head + ",\n".join(rows) + "\n};\n"


def _dump(rng: random.Random) -> str:
    lines: list[str] = []
    for at in range(0, 2400, 16):
        data = rng.choice((bytes(16), rng.randbytes(16), b"\xff" * 16, _saying(rng).encode()[:16]))
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
        lines.append(f"{at:08x}  {data[:8].hex(' ')}  {data[8:].hex(' ')}  |{shown}|")
    return "\n".join(lines)


def _records(rng: random.Random) -> str:
    sep = rng.choice((",", ",", ";", "\t"))
    start, lines = rng.randint(1, 4000), [sep.join(("no", "name", "kind", "grams", "paid"))]
    for number in range(start, start + 150):
        cells = (rng.choice(_NAMES), rng.choice(_KINDS), str(rng.randint(1, 9999)))
        lines.append(sep.join((str(number), *cells, rng.choice(("yes", "no", "0.00")))))
    return "\n".join(lines)


def _table(rng: random.Random) -> str:
    lines = [_saying(rng), "", "| # | thing | state | note |", "|---|:------|-------|------|"]
    for number in range(1, 90):
        note = rng.choice(("", "ok", f"{rng.randint(2, 99)} %", f"{rng.choice(_KINDS)} since May"))
        lines.append(f"| {number} | {rng.choice(_THINGS)} | {rng.choice(_KINDS)} | {note} |")
    return "\n".join([*lines, "", _saying(rng) + " " + _saying(rng)])


def _log(rng: random.Random) -> str:
    at, lines = rng.randint(0, 80000), list[str]()
    while sum(map(len, lines)) < _SIZE:
        at += rng.choice((0, 0, 1, 1, 2, 30))
        clock = f"{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}.{rng.randint(0, 999):03}"
        level, thing = rng.choice(("INFO ", "DEBUG", "WARN ", "ERROR")), rng.choice(_THINGS)
        said = rng.choice(
            (
                f"heartbeat ok seq={len(lines)}",
                f"GET /{thing}/{rng.randint(1, 500)} 200 {rng.randint(1, 900)}ms",
                f"retry {rng.randint(1, 3)}/3 for {thing}: connection reset by peer",
                f"cache {rng.choice(_KINDS)} size={rng.randint(1, 99)}MB gone={rng.randint(0, 9)}",
            )
        )
        lines.append(
            f"2025-03-{1 + at // 86400:02}T{clock}Z {level} [worker-{rng.randint(1, 4)}] {said}"
        )
    return "\n".join(lines)


def _drawing(rng: random.Random) -> str:
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 480">']
    while sum(map(len, parts)) < 4500:
        x, y = rng.randint(0, 640), rng.randint(0, 480)
        path = [f"M{x} {y}"]
        path += [
            rng.choice("lcLhv") + f"{rng.uniform(-40, 40):.1f} {rng.uniform(-9, 9):.2f}"
            for _ in range(rng.randint(4, 30))
        ]
        parts.append(f'  <path d="{" ".join(path)} z" fill="#{rng.randrange(1 << 24):06x}"/>')
        if rng.random() < 0.4:
            parts += [f'  <rect x="{8 * n}" y="0" width="8" height="8"/>' for n in range(9)]
    return "\n".join([*parts, "</svg>"])


def _poem(rng: random.Random) -> str:
    refrain = f"  O {rng.choice(_KINDS)} {rng.choice(_THINGS)}, sing with me!"
    verses: list[str] = []
    for _ in range(14):
        lines = []
        for _ in range(4):
            thing, other = rng.sample(_THINGS, 2)
            lines.append(
                rng.choice(
                    (
                        f"The {thing} {rng.choice(_DEEDS)} what the {other} gave,",
                        f"And {rng.choice(_KINDS)} was the {thing} at the {other}’s door;",
                        f"No {rng.choice(_KINDS)} {thing} ever crossed that wave,",
                        f"We saw {rng.choice(_NAMES)} by the {other} — and nothing more.",
                    )
                )
            )
        verses.append("\n".join([*lines, refrain]))
    return "\n\n".join(verses)


def _chat(rng: random.Random) -> str:
    one, other = rng.sample(_NAMES, 2)
    lines, minute = list[str](), rng.randint(0, 40)
    while sum(map(len, lines)) < _SIZE:
        minute += rng.randint(0, 3)
        said = rng.choice(
            (_saying(rng), "ok", "Sure!", "haha 😂", "Sorry, I was away.", f"{rng.randint(2, 9)}?")
        )
        said += rng.choice(("", "", " Let me continue later.", " 👍🏽", " Here is the rest of it:"))
        lines.append(f"[{9 + minute // 60:02}:{minute % 60:02}] {rng.choice((one, other))}: {said}")
    return "\n".join(lines)


#: Clauses of four scripts; `{}` takes a number, so that hardly one comes twice.
_SCRIPTS = {
    "zh": (
        "清晨六点，第{}班渡船离开码头，船长把账本放在舵旁。",
        "老师在黑板上写下{}个词，又让学生逐一解释它们的来历。",
        "“{}号仓库的屋顶漏水了。”木匠说，然后去找梯子。",
        "据当地人说，{}年前这里曾是一片桑园——如今只剩几棵树。",
        "接着，厨师加入{}克面粉，继续搅拌，直到面团光滑为止。",
        "以下是{}个常见错误：忘记保存、重复登记、漏写日期。",
    ),
    "ja": (
        "朝の{}時に船が港を出ると、灯台の明かりが静かに消えた。",
        "「{}番の窓口で切符を買いました」と彼女は言った。",
        "畑には{}本の苗があり、続きの作業は午後に行われる。",
        "祖父は{}年のあいだ、同じ道具で箱を作り続けている。",
        "雨が{}日も降ったので、川沿いの道は通れなくなった。",
    ),
    "ar": (
        "في الساعة {} غادرت السفينة الميناء، وكان القبطان يكتب في دفتره. ",
        "قالت المعلمة إن {} كتابًا وصل إلى المكتبة هذا الأسبوع. ",
        "بعد {} سنوات تابع النجار عمله في الورشة القديمة قرب السوق. ",
        "هل تعرف من باع {} سلة من التمر للمسافرين؟ ",
        "أما الطريق إلى القرية فطوله {} كيلومترًا، ويمر بجانب النهر. ",
    ),
    "hi": (
        "सुबह {} बजे नाव घाट से चली और माँझी ने गीत गाया। ",
        "अध्यापिका ने {} नए शब्द लिखे और बच्चों से अर्थ पूछा। ",
        "{} साल पहले यहाँ एक बड़ा बाग़ था, अब केवल दो पेड़ बचे हैं। ",
        "दुकानदार ने कहा कि {} किलो चावल कल तक आ जाएगा। ",
        "बारिश {} दिन तक जारी रही, इसलिए सड़क बंद कर दी गई। ",
    ),
    "emoji": (
        "🚀 Launch {} went fine 🎉🎉 and the 👩‍🚀 crew waved 🇳🇴🇧🇷. ",
        "Step {}: 🥕 + 🧄 → 🍲 (stir 3×, taste, add 🧂). ",
        "❤️‍🔥 {} likes, 💬 7 replies, 🏳️‍🌈 forever — see you! 👋🏿 ",
        "✅ task {} · ❌ none left · ⏳ waiting for 👨‍👩‍👧‍👦 ",
    ),
}


def _script(language: str) -> Callable[[random.Random], str]:
    def write(rng: random.Random) -> str:
        parts: list[str] = []
        while sum(map(len, parts)) < 3500:
            clause = rng.choice(_SCRIPTS[language]).format(rng.randint(2, 9999))
            parts.append(clause + rng.choice(("", "", "", "\n\n")))
        return "".join(parts)

    return write


def _catalogue(rng: random.Random) -> str:
    parts = ['msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n']
    while sum(map(len, parts)) < _SIZE:
        thing, line = rng.choice(_THINGS), rng.randint(1, 900)
        parts.append(
            f'#: src/{thing}.c:{line}\n#, c-format\nmsgid "Cannot open {thing} %d"\n'
            f'msgstr "{_saying(rng)}"\n'
        )
    return "\n".join(parts)


def _changes(rng: random.Random) -> str:
    parts = ["# Changelog"]
    for minor in range(30, 8, -1):
        items = [f"- {_saying(rng)} (#{rng.randint(10, 9999)})" for _ in range(rng.randint(1, 4))]
        parts.append(f"## 2.{minor}.0\n\n### Fixed\n\n" + "\n".join(items))
    return "\n\n".join(parts)


def _diff(rng: random.Random) -> str:
    parts: list[str] = []
    for number in range(1, 25):
        thing = rng.choice(_THINGS)
        parts.append(
            f"--- a/{thing}.py\n+++ b/{thing}.py\n@@ -{number},4 +{number},4 @@\n"
            f" def {thing}_{number}(x):\n-    return x.{rng.choice(_DEEDS)}({number})\n"
            f"+    return x.{rng.choice(_DEEDS)}({number}, {rng.choice(_KINDS)}=True)\n "
        )
    return "\n".join(parts)


def _subtitles(rng: random.Random) -> str:
    parts: list[str] = []
    for number in range(1, 60):
        clock = f"00:{number // 15:02}:{number * 4 % 60:02}"
        parts.append(f"{number}\n{clock},000 --> {clock},900\n{_saying(rng)}\n")
    return "\n".join(parts)


def _steps(rng: random.Random) -> str:
    parts = ["# How to do it"]
    for number in range(1, 40):
        block = f"\n\n   ```sh\n   make {rng.choice(_THINGS)}\n   ```" if rng.random() < 0.2 else ""
        parts.append(f"{number}. {_saying(rng)}{block}")
    return "\n".join(parts) + "\n\n" + rng.choice(_CLOSINGS)


def _inserts(rng: random.Random) -> str:
    lines = [f"CREATE TABLE {rng.choice(_THINGS)} (id int, name text, kind text, price int);"]
    lines += [
        f"INSERT INTO goods VALUES ({number}, '{rng.choice(_THINGS)}', "
        f"'{rng.choice(_KINDS)}', {rng.choice((0, 0, rng.randint(1, 500)))});"
        for number in range(1, 80)
    ]
    return "\n".join(lines)


def _periodic(rng: random.Random) -> str:
    unit = rng.choice(
        (
            "".join(rng.choices("01 \n", k=rng.randint(2, 24))),
            rng.choice(("- [ ] todo\n", "0.00,0.00,0.00\n", "<td>0</td>", "null, ", "| 0 | 0 |\n")),
            _saying(rng) + " ",
            f"    {rng.choice(_THINGS)}: {rng.choice(_KINDS)}\n    done: false\n",
            "".join(chr(rng.choice((13, 10, 32, 48, 49, 97, 0x4E00))) for _ in range(9)),
        )
    )
    lead = rng.choice(("", _saying(rng) + "\n\n", "```\n"))
    return lead + unit * (rng.randint(600, 2400) // len(unit) + 3)


_MADE: tuple[tuple[str, Callable[[random.Random], str], int], ...] = (
    ("prose", _prose, 6),
    ("minified", _minified, 5),
    ("nested", _nested, 3),
    ("bitmap", _bitmap, 6),
    ("hexdump", _dump, 4),
    ("records", _records, 6),
    ("table", _table, 6),
    ("log", _log, 4),
    ("svg", _drawing, 4),
    ("poem", _poem, 4),
    ("chat", _chat, 4),
    *((language, _script(language), 3) for language in _SCRIPTS),
    ("catalogue", _catalogue, 3),
    ("changes", _changes, 3),
    ("diff", _diff, 3),
    ("subtitles", _subtitles, 3),
    ("steps", _steps, 4),
    ("inserts", _inserts, 3),
    ("periodic", _periodic, 12),
)


def _made(rng: random.Random) -> Iterator[Text]:
    for kind, write, count in _MADE:
        for _ in range(count):
            yield Text(kind, write(rng))
    for _ in range(4):
        yield Text("document", _document(rng, "json", _nested(rng)[:3000]))


# Wordings ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wording:
    """How the models of one set speak."""

    preambles: tuple[str, ...]
    complete: tuple[str, ...]
    around: tuple[tuple[str, str], ...]
    """What stands around an anchor that is repeated as a quotation."""


_FILES_WORDING = Wording(
    preambles=(
        "Here's the remaining part of the file:\n\n",
        "Sure thing! Picking up exactly where the output was cut:\n\n",
        "I was interrupted. Continuing now.\n\n",
        "Understood, I will go on from that point:\n\n",
        "[continuing from previous message]\n\n",
        "Sorry about that! The rest follows:\n\n",
        "*Continuing…*\n\n",
        "Let me finish the remaining lines:\n\n",
        "Okay, continuing right after the last token:\n",
        "Hier ist der Rest der Datei:\n\n",
        "Voici la suite du fichier :\n\n",
        "Claro, sigo desde donde quedó cortado:\n\n",
        "Ecco il resto, riprendo da dove mi ero interrotto:\n\n",
        "下面继续输出剩余内容：\n\n",
        "続きを出力します。\n\n",
        "Вот оставшаяся часть:\n\n",
    ),
    complete=(
        "The file above is already complete; there is nothing left to add.",
        "Nothing further to add. The previous output was complete.",
        "My last message was not truncated, the answer is complete.",
    ),
    around=(('"', '"'), ("`", "`"), ("<anchor>", "</anchor>"), ("...", ""), ("“", "”")),
)
_MADE_WORDING = Wording(
    preambles=(
        "Continuing the answer from the point of interruption:\n\n",
        "My response got truncated, so here is what was missing:\n\n",
        "Thanks for your patience, resuming below.\n\n",
        "Right. The remainder:\n\n",
        "(resuming)\n\n",
        "Of course, I'll pick it up from there:\n\n",
        "Apologies, I hit the length limit. Going on:\n\n",
        "**Continued**\n\n",
        "Ich setze genau an der Abbruchstelle fort:\n\n",
        "Je continue là où je me suis arrêté :\n\n",
        "Perdón por el corte. Continúo:\n\n",
        "Continuando a partir do ponto em que parei:\n\n",
        "Ik ga verder waar ik gebleven was:\n\n",
        "Kontynuuję od miejsca przerwania:\n\n",
        "好的，接着上面的内容继续：\n\n",
        "すみません、途中で切れてしまいました。続けます：\n\n",
        "이어서 계속하겠습니다:\n\n",
        "سأتابع من النقطة التي توقفت عندها:\n\n",
        "मैं वहीं से जारी रखता हूँ:\n\n",
    ),
    complete=(
        "The previous answer was already complete, so there is nothing to continue.",
        "There's nothing more to write; the text above is complete.",
        "Die Antwort oben ist bereits vollständig.",
    ),
    around=(("«", "»"), ("**", "**"), ("<anchor>", "</anchor>"), ("…", ""), ("'", "'")),
)


# Manners ----------------------------------------------------------------------------------------

_ASCII = str.maketrans(
    {"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "...", "\u00a0": " "}
)


def _typographies(anchor: str) -> Iterator[tuple[str, str]]:
    yield "anchor, straight quotes and dashes", anchor.translate(_ASCII)
    yield "anchor, decomposed", unicodedata.normalize("NFD", anchor)
    yield "anchor, capital first letter", anchor[:1].upper() + anchor[1:]
    yield "anchor, curly quotes", re.sub(r'"([^"\n]*)"', "“\\1”", anchor).replace("'", "’")


def _tells(before: str, echo: str) -> bool:
    """Whether a reader can tell that `echo`, the end of the text, was repeated."""
    signs = [char for char in echo if not char.isspace()]
    wide = sum(char >= "\u2e80" for char in signs)
    enough = len(signs) + wide >= 12 and len(set(signs)) >= 6 and any(map(str.isalnum, signs))
    return enough and before.count(echo) == 1 and (echo * 2).find(echo, 1) == len(echo)


def _echoes(before: str, rest: str) -> Iterator[tuple[str, str]]:
    line_start = before.rfind("\n", 0, -1) + 1
    yield "echo of the line", before[line_start:]
    yield "echo of two lines", before[before.rfind("\n", 0, max(0, line_start - 1)) + 1 :]
    ends = [found.end() for found in re.finditer(r"[.!?…] |[。！？”」]|\n\n", before[-500:-2])]
    if ends:
        yield "echo of the sentence", before[-500:][ends[-1] :]
    for size in (24, 40, 90):
        inside = before[-size - 1 : -size + 1]
        place = "inside a word" if inside.isalnum() else "between words"
        yield f"echo of {size}, {place}", before[-size:]
    word = re.search(r"[^\W\d_]{5,}\Z", before)
    if word and rest[:1].isalpha() and ord(word[0][0]) < 0x2E80:
        yield "half word again", word[0]


@dataclass
class _Cut:
    """One place in a text, and all that a model may do there."""

    rng: random.Random
    text: Text
    at: int
    wording: Wording

    def __post_init__(self) -> None:
        self.before, self.rest = self.text.body[: self.at], self.text.body[self.at :]
        self.anchor = choose_anchor(self.before)

    def exact(self, name: str) -> Iterator[Case]:
        yield self._case(name, self.rest)
        yield Case(f"{name}, nothing asked", self.text, self.at, None, self.rest, self.text.body)

    def manners(self) -> Iterator[Case]:
        yield from self.exact("exact")
        opening = self.rng.choice(self.wording.preambles)
        yield self._case("preamble", opening + self.rest)
        done = self.rng.choice(self.wording.complete)
        yield Case("already complete", self.text, self.at, self.anchor, done, self.before)
        for manner, head in (*_echoes(self.before, self.rest), *self._fences()):
            if manner.startswith(("half", "fence")) or _tells(self.before, head):
                yield self._case(manner, head + self.rest)
                yield self._case(f"preamble, {manner}", opening + head + self.rest)
        if len(self.before) >= 400 and self.text.kind != "periodic":
            yield self._case("restart", self.text.body)
            yield self._case("preamble, restart", opening + self.text.body)
        if self.anchor and not self.rest.startswith(self.anchor):
            for manner, head in self._anchors(self.anchor, opening):
                yield self._case(manner, head + self.rest)

    def _case(self, manner: str, after: str) -> Case:
        plain = manner.startswith(("echo", "half"))
        asked = self.rng.choice((self.anchor, None)) if plain else self.anchor
        return Case(manner, self.text, self.at, asked, after, self.text.body)

    def _fences(self) -> Iterator[tuple[str, str]]:
        cut = Cut(self.before)
        if cut.fence is None or not cut.inside_line or "`" in cut.line:
            return
        if self.rest.strip("`\n "):
            again = f"{cut.fence.marker}{cut.fence.info}\n"
            yield "fence again", again
            yield "fence and line again", again + cut.line

    def _anchors(self, anchor: str, opening: str) -> Iterator[tuple[str, str]]:
        yield "anchor", anchor
        yield "preamble, anchor", opening + anchor
        yield "anchor behind a newline", self.rng.choice(("\n", "\n\n", " ")) + anchor
        left, right = self.rng.choice(self.wording.around)
        yield "anchor in marks", left + anchor + right
        yield from (found for found in _typographies(anchor) if found[1] != anchor)
        if anchor[-1:].isspace():
            yield "anchor without its end", anchor.rstrip()
        if (gap := anchor.find(" ", 6)) > 0:
            other = self.rng.choice(("\n", "  "))
            yield "anchor, other white space", anchor[:gap] + other + anchor[gap + 1 :]


#: The manner of the many exact cuts: they show what is damaged, and would only flatter the rest.
EVERYWHERE = "exact, everywhere"


def _cuts(rng: random.Random, text: Text) -> Iterator[tuple[int, bool]]:
    """Where the text is cut, and whether every manner is tried there."""
    body = text.body
    least = 30 if text.kind == "periodic" else 300
    places = [at for at in estimated_boundaries(body) if least <= at < len(body) - 30]
    lines = [found.end() for found in re.finditer(r"\n", body[:-30]) if found.end() >= least]
    closing = [body.rfind("\n\n") + 2] if body.endswith(_CLOSINGS) else []
    yield from ((at, True) for at in rng.sample(places, min(6, len(places))))
    yield from ((at, True) for at in rng.sample(lines, min(2, len(lines))))
    yield from ((at, False) for at in rng.sample(places, min(60, len(places))))
    yield from ((at, False) for at in rng.sample(lines, min(30, len(lines))))
    for end in closing:  # the places around a closing sentence, and around a fence above it
        yield from ((at, False) for at in (end, end - 1, end - 2, end - 5, end - 6))
    fences = [found.start() for found in re.finditer(r"^\s*```", body[:-30], re.MULTILINE)]
    yield from ((at, False) for at in fences if at >= least)


def frozen_cases(name: str) -> list[Case]:
    """The cases of the set `name`: "files" or "made"."""
    rng = random.Random(f"seams, {name}, 1")
    texts, wording = (
        (_files(rng), _FILES_WORDING) if name == "files" else (_made(rng), _MADE_WORDING)
    )
    cases: list[Case] = []
    for text in texts:
        for at, all_manners in list(_cuts(rng, text)):
            cut = _Cut(rng, text, at, wording)
            cases += cut.manners() if all_manners else cut.exact(EVERYWHERE)
    return cases

"""Cases for seams: real text cut at token boundaries, continued in every manner models have.

The texts are the running Python's own: sources and documents of the standard library, the
descriptions of the installed packages, and generated Markdown, JSON, CSV, HTML, YAML and
CJK. Each text is cut at a token boundary (tiktoken where its vocabulary is at hand, otherwise
an estimate, see `estimated_boundaries`) and the rest is given back in one manner, with the
anchor repeated first (obedient) or not. The seed decides everything; on another Python or with
other packages the texts are others, so figures are compared on one machine.

`seams.py` measures with these cases, `scripts/fit_seams.py` fits the weights with these texts.
"""

from __future__ import annotations

import importlib.metadata
import json
import random
import re
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from continuation.seams.text import Cut, choose_anchor

_SIZE = 12000


@dataclass(frozen=True)
class Text:
    """One text of the corpus, and the kind it belongs to."""

    kind: str
    body: str


@dataclass(frozen=True)
class Case:
    """One cut and one attempt to go on; `whole` is what the join should give."""

    manner: str
    text: Text
    at: int
    anchor: str | None
    after: str
    whole: str
    lossy: bool = False

    @property
    def before(self) -> str:
        return self.text.body[: self.at]


# The corpus -----------------------------------------------------------------------------------


def corpus(rng: random.Random) -> list[Text]:
    texts = list(_library_texts(rng)) + list(_descriptions(rng))
    for _ in range(24):
        texts += [
            Text("markdown", _markdown(rng, texts)),
            Text("json", _json(rng)),
            Text("csv", _csv(rng)),
            Text("html", _html(rng)),
            Text("yaml", _yaml(rng)),
            Text("cjk", _cjk(rng)),
            Text("mixed", _mixed(rng)),
        ]
    return texts


def _read(path: Path, rng: random.Random, size: int = _SIZE) -> str | None:
    try:
        body = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if len(body) < 2000:
        return None
    start = rng.randrange(max(1, len(body) - size))
    start = body.find("\n", start) + 1 if start else 0
    return body[start : start + size]


def _library_texts(rng: random.Random) -> Iterator[Text]:
    root = Path(sysconfig.get_paths()["stdlib"])
    sources = sorted(p for p in root.glob("*.py")) + sorted(root.glob("[a-s]*/*.py"))
    sources = [p for p in sources if "site-packages" not in p.parts and "test" not in p.parts]
    documents = sorted(root.glob("*.txt")) + sorted(root.glob("[a-z]*/*.txt"))
    documents += sorted((root / "pydoc_data").glob("*.py"))
    for kind, paths, count in (("code", sources, 70), ("prose", documents, 12)):
        for path in rng.sample(paths, min(count, len(paths))):
            body = _read(path, rng)
            if body:
                yield Text(kind, body)


def repetitive_texts(rng: random.Random, count: int) -> Iterator[Text]:
    """Files that repeat themselves more than answers do: tests, tables, styles, generated code."""
    root = Path(sysconfig.get_paths()["stdlib"])
    endings = ("*.py", "*.txt", "*.css", "*.json", "*.html", "*.js", "*.pem", "*.xml", "*.toml")
    paths = sorted(path for ending in endings for path in root.rglob(ending))
    for path in rng.sample(paths, min(count, len(paths))):
        body = _read(path, rng, 40_000)
        if body:
            yield Text("repetitive", body)


def _descriptions(rng: random.Random) -> Iterator[Text]:
    found = []
    for distribution in importlib.metadata.distributions():
        body = distribution.read_text("METADATA") or ""
        body = body.partition("\n\n")[2]
        if len(body) > 2000:
            found.append(body[:_SIZE])
    for body in rng.sample(sorted(set(found)), min(40, len(set(found)))):
        yield Text("markdown", body)


def words(text: str) -> list[str]:
    return text.split()


_NOUNS = words(
    "river harbour engine ledger window garden signal module kernel packet buffer market forest "
    "bridge station teacher library message answer table column theorem integral molecule patient "
    "contract invoice schedule festival mountain glacier orchestra painting satellite telescope"
)
_VERBS = words(
    "carries follows replaces measures describes repeats divides supports protects explains "
    "crosses borrows returns transforms collects improves reaches delays reveals connects"
)
_ADJECTIVES = words(
    "quiet narrow ancient modern fragile steady hidden local foreign bright careful rapid broken "
    "useful gentle remote typical empty curious reliable important expensive different"
)


def _sentence(rng: random.Random) -> str:
    noun, other = rng.sample(_NOUNS, 2)
    first, second = rng.sample(_ADJECTIVES, 2)
    verb = rng.choice(_VERBS)
    forms = (
        f"The {first} {noun} {verb} the {second} {other}.",
        f"In {rng.randint(1700, 2030)}, every {noun} {verb} a {first} {other}, "
        f"but the {second} one does not.",
        f"When the {noun} {verb} its {other}, a {first} change becomes {second}; "
        f"nobody noticed it before {rng.choice(_NOUNS)} time.",
        f"A {first} {noun} (see section {rng.randint(1, 9)}.{rng.randint(1, 9)}) "
        f"{verb} {rng.randint(2, 90)} % of each {other}.",
        f'"{first.capitalize()}," she said, "is the {noun} that {verb} our {second} {other}."',
    )
    return rng.choice(forms)


def paragraph(rng: random.Random, sentences: int = 5) -> str:
    return " ".join(_sentence(rng) for _ in range(rng.randint(2, sentences)))


def _table(rng: random.Random) -> str:
    names = rng.sample(_NOUNS, rng.randint(3, 5))
    rows = [names, ["---"] * len(names)]
    for number in range(rng.randint(5, 14)):
        values = [str(rng.randint(1, 999)), rng.choice(_NOUNS), "yes", "no", "–"]
        rows += [[f"{rng.choice(_ADJECTIVES)} {number}", *rng.choices(values, k=len(names) - 1)]]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _markdown(rng: random.Random, texts: list[Text]) -> str:
    code = [text.body for text in texts if text.kind == "code"]
    parts = [f"# {_sentence(rng)[:-1]}"]
    while sum(map(len, parts)) < _SIZE:
        parts += [
            f"## {rng.choice(_ADJECTIVES).capitalize()} {rng.choice(_NOUNS)}",
            paragraph(rng),
        ]
        lines = rng.choice(code).split("\n")
        start = rng.randrange(max(1, len(lines) - 40))
        snippet = "\n".join(lines[start : start + rng.randint(8, 40)]).strip("\n")
        items = [_sentence(rng) for _ in range(rng.randint(3, 8))]
        block = rng.randrange(5)
        if block == 0 and "```" not in snippet:
            parts.append(f"```python\n{snippet}\n```")
        elif block == 1:
            parts.append(_table(rng))
        elif block == 2:
            parts.append("\n".join(f"{n}. {item}" for n, item in enumerate(items, 1)))
        elif block == 3:
            parts.append("\n".join(f"- **{rng.choice(_NOUNS)}**: {item}" for item in items))
        else:
            parts.append(f"```json\n{_json(rng, 6)}\n```")
    return "\n\n".join(parts)


def _record(rng: random.Random) -> dict[str, object]:
    return {
        "id": rng.randrange(10**6),
        "name": f"{rng.choice(_ADJECTIVES)} {rng.choice(_NOUNS)}",
        "note": _sentence(rng),
        "active": rng.random() < 0.5,
        "score": round(rng.random() * 100, 3),
        "tags": rng.sample(_NOUNS, rng.randint(1, 4)),
    }


def _json(rng: random.Random, records: int = 50) -> str:
    data = {"records": [_record(rng) for _ in range(records)], "total": records}
    return json.dumps(data, indent=rng.choice([2, 4]), ensure_ascii=False)


def _csv(rng: random.Random) -> str:
    lines = ["id,name,city,amount,note"]
    for number in range(200):
        note = _sentence(rng).replace('"', "'")
        lines.append(
            f"{number},{rng.choice(_NOUNS)},{rng.choice(_NOUNS).capitalize()},"
            f'{rng.randint(1, 9999)}.{rng.randint(0, 99):02},"{note}"'
        )
    return "\n".join(lines)


def _html(rng: random.Random) -> str:
    parts = ["<!DOCTYPE html>\n<html>\n<body>"]
    while sum(map(len, parts)) < _SIZE:
        rows = "\n".join(
            f"    <tr><td>{rng.choice(_NOUNS)}</td><td>{rng.randint(1, 9999)}</td></tr>"
            for _ in range(6)
        )
        parts += [
            f'  <section id="{rng.choice(_NOUNS)}-{rng.randint(1, 999)}">',
            f"    <h2>{_sentence(rng)[:-1]}</h2>\n    <p>{paragraph(rng)}</p>",
            f"  <table>\n{rows}\n  </table>\n  </section>",
        ]
    return "\n".join([*parts, "</body>\n</html>"])


def _yaml(rng: random.Random) -> str:
    lines = ["services:"]
    while sum(map(len, lines)) < _SIZE // 2:
        lines += [
            f"  {rng.choice(_NOUNS)}-{rng.randint(1, 999)}:",
            f"    image: {rng.choice(_NOUNS)}:{rng.randint(1, 9)}.{rng.randint(0, 20)}",
            f"    description: {_sentence(rng)!r}",
            "    ports:",
            f'      - "{rng.randint(1000, 9999)}:{rng.randint(1000, 9999)}"',
            f"    restart: {rng.choice(['always', 'on-failure'])}",
        ]
    return "\n".join(lines)


#: Words of three languages and what ends a clause, to be put together at random.
_CJK = {
    "zh": (
        "系统 模块 用户 研究人员 学生 市场 城市 医生 作者 老师 桥梁 算法 部门 公司 "
        "孩子们 天气 图书馆 数据库 机器 农民",
        "分析 处理 改变 记录 提高 讨论 比较 保存 发现 减少 支持 检查 描述 解释 建造 "
        "学习 测量 收集 关闭 修复",
        "整体结构 输入数据 日志文件 运行性能 实验方法 历史资料 交通状况 三种方案 "
        "节点数量 教学计划 销售记录 长期影响 水资源 语言模型 安全问题 艺术作品",
        "，因此 ，然而 ，并且 ，最后 。随后， 。同时， 。 。 。",
    ),
    "ja": (
        "この関数は 利用者は 研究者は 会社は 先生は 新しい装置は 図書館は 子供たちは "
        "山の神社は 次の章は 電車は 農家は 医師は 市場は",
        "全体の構成を 入力の値を 十年間の記録を 古い方法を 解決策を 会議の結果を "
        "海沿いの町を 料理の手順を 言葉の意味を 計算の精度を 予算案を 写真を",
        "確認する 検証する 保存する 変更した 調べている 説明した 比べている 改善した "
        "伝えている 支えている 削除した 描いている",
        "。 。 。 が、 ので、 。しかし、 。また、",
    ),
    "ko": (
        "함수는 사용자는 연구자는 회사는 선생님은 도서관은 아이들은 장치는 의사는 "
        "농부는 시장은 기차는",
        "입력값을 구조를 데이터를 방법을 결과를 마을을 예제를 정확도를 사진을 예산을 언어를 계획을",
        "검증한다 저장한다 바꾸었다 조사했다 설명한다 비교한다 개선했다 전달한다 "
        "보여준다 삭제했다 그렸다 지원한다",
        ". . . , .",
    ),
}


def _cjk(rng: random.Random) -> str:
    language = rng.choice(list(_CJK))
    lists = [words.split(" ") for words in _CJK[language]]
    gap = " " if language == "ko" else ""
    parts: list[str] = []
    while sum(map(len, parts)) < 4000:
        clause = gap.join(rng.choice(words) for words in lists[:3])
        parts.append(clause + rng.choice(lists[3]) + (gap or ""))
        if rng.random() < 0.08:
            parts.append(str(rng.randint(2, 2030)) + "\n\n")
    return "".join(parts)


def _mixed(rng: random.Random) -> str:
    pieces = (
        "يجب أن نبدأ بتحليل البيانات قبل كتابة التقرير. ",
        "המערכת בודקת את הקלט לפני שהיא שומרת אותו. ",
        "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag and 👍🏽 thumbs. ",
        "Der Fußgänger überquert die Straße; naïve café. ",
    )
    parts: list[str] = []
    while sum(map(len, parts)) < 4000:
        parts += [rng.choice(pieces), _sentence(rng), rng.choice([" ", "\r\n", "\r\n\r\n"])]
    return "".join(parts)


# Cuts -----------------------------------------------------------------------------------------


def boundaries() -> Callable[[str], list[int]]:
    try:
        import tiktoken

        encoding = tiktoken.get_encoding("o200k_base")
    except Exception:  # offline, whatever the reason: the estimate serves
        return estimated_boundaries
    return lambda text: list(encoding.decode_with_offsets(encoding.encode_ordinary(text))[1])


_PIECE = re.compile(r" ?[^\W\d_]+|\d{1,3}| ?[^\s\w]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|_")


def estimated_boundaries(text: str) -> list[int]:
    """Token boundaries, estimated: the pre-tokeniser's pieces, long words in fours to sevens.

    Against o200k_base this gives mid-word cuts and cuts after white space about as often.
    """
    rng = random.Random(len(text))
    found: list[int] = []
    for piece in _PIECE.finditer(text):
        found.append(piece.start())
        at = piece.start()
        wide = ord(piece[0].strip()[:1] or "a") > 0x2E7F
        while piece.end() - at > (2 if wide else 9):
            at += rng.randint(1, 2) if wide else rng.randint(4, 7)
            if at < piece.end():
                found.append(at)
    return found


# Manners --------------------------------------------------------------------------------------

PREAMBLES = (
    "Continuing from where I left off:\n\n",
    "Sure, here is the rest:\n\n",
    "Apologies for the interruption. Picking up where I stopped:\n\n",
    "Of course! Let me continue.\n\n",
    "I apologize for the cut-off. Here's the remainder of the response:\n\n",
    "(continued)\n\n",
    "Certainly, resuming exactly from the last line.\n\n",
    "My previous message was cut off, so I'll carry on here.\n\n",
    "**Continuation:**\n\n",
    "Natürlich, hier geht es weiter:\n\n",
    "Désolé pour la coupure, je reprends :\n\n",
    "Lo siento, continúo donde me quedé:\n\n",
    "Desculpe a interrupção, continuando:\n\n",
    "好的，我继续：\n\n",
    "抱歉，回答被截断了，以下是剩余部分：\n\n",
    "申し訳ありません。続きは以下のとおりです：\n\n",
    "계속해서 작성하겠습니다:\n\n",
    "Извините, продолжаю с того места, где остановился:\n\n",
    "عذراً، سأكمل من حيث توقفت:\n\n",
    "Right, back to it:\n\n",
    "Got it. Next lines:\n",
    "Tässä jatkoa:\n\n",
)
_COMPLETE = (
    "The response above is already complete.",
    "There is nothing more to add; my previous answer was complete.",
    "上面的回答已经完整，没有更多内容。",
    "My answer was not cut off. It is complete as it stands.",
)


@dataclass
class Maker:
    """Makes the cases of one cut."""

    rng: random.Random
    text: Text
    at: int
    anchor: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.before, self.rest = self.text.body[: self.at], self.text.body[self.at :]
        self.anchor = choose_anchor(self.before)

    def case(self, manner: str, opening: str, *, obedient: bool, echo: str = "") -> Case:
        repeated = self.anchor or "" if obedient else echo
        if obedient and len(echo) > len(repeated):
            repeated = echo
        name = manner + (" (obedient)" if obedient else "")
        after = opening + repeated + self.rest
        return Case(name, self.text, self.at, self.anchor, after, self.text.body)

    def cases(self) -> Iterator[Case]:
        for obedient in (True, False):
            yield self.case("exact", "", obedient=obedient)
            yield from self._echoes(obedient=obedient)
            opening = self.rng.choice(PREAMBLES)
            yield self.case("preamble", opening, obedient=obedient)
            if self._line().strip():
                yield self.case("preamble, echo", opening, obedient=obedient, echo=self._line())
            yield from self._fences(obedient=obedient)
        yield from self._restarts()
        yield from self._others()

    def _line(self) -> str:
        return self.before[self.before.rfind("\n", 0, -1) + 1 :]

    def _echoes(self, *, obedient: bool) -> Iterator[Case]:
        size = self.rng.randint(1, 400)
        yield self.case("echo of k", "", obedient=obedient, echo=self.before[-size:])
        if self._line().strip():
            yield self.case("echo of line", "", obedient=obedient, echo=self._line())
        word = re.search(r"\S+\Z", self.before)
        if word and word[0].isalpha() and len(word[0]) > 3 and self.rest[:1].isalpha():
            yield self.case("completes word", "", obedient=obedient, echo=word[0])
        last = max(self.before.rfind(mark, 0, -2) for mark in (". ", "。", "! ", "? "))
        if last > 0 and len(self.before) - last < 500:
            sentence = self.before[last + 1 :].lstrip(" ")
            yield self.case("echo of sentence", "", obedient=obedient, echo=sentence)
        block = self.before.rfind("\n\n", 0, -2)
        if block > 0 and len(self.before) - block < 580:
            yield self.case("echo of block", "", obedient=obedient, echo=self.before[block + 2 :])
        if re.match(r"\s*([-*|]|\d+\.)", self._line()):
            yield self.case("echo of item or row", "", obedient=obedient, echo=self._line())
        yield from self._headers(obedient=obedient)

    def _headers(self, *, obedient: bool) -> Iterator[Case]:
        found = re.search(r"(?:^|\n)(\|[^\n]*\n\|[ |:-]+\n)(?:\|[^\n]*\n)*\|?[^\n]*$", self.before)
        line = self.before[self.before.rfind("\n") + 1 :]
        if found and (line.startswith("|") or not line) and self.before.endswith("\n"):
            yield self.case("table header again", found[1], obedient=obedient)
        elif found and line.startswith("|"):
            yield self.case("table header again", found[1], obedient=obedient, echo=line)

    def _fences(self, *, obedient: bool) -> Iterator[Case]:
        cut = Cut(self.before)
        fence = cut.fence
        if (
            fence is None
            or cut.line.lstrip().startswith(fence.marker)
            or not self.rest.strip("\n").strip("`")
        ):
            return
        closing = self.rest.startswith(("```", "\n```"))
        for name, info in (("fence again", fence.info), ("bare fence again", "")):
            if closing and not info:
                continue
            opening = f"{fence.marker}{info}\n"
            yield self.case(name, opening, obedient=obedient)
            if self._line().strip():
                yield self.case(name + ", line", opening, obedient=obedient, echo=self._line())
            preamble = self.rng.choice(PREAMBLES)
            yield self.case("preamble, " + name, preamble + opening, obedient=obedient)

    def _restarts(self) -> Iterator[Case]:
        body = self.text.body
        yield Case("restart", self.text, self.at, self.anchor, body, body)
        opening = self.rng.choice(PREAMBLES)
        yield Case("preamble, restart", self.text, self.at, self.anchor, opening + body, body)

    def _others(self) -> Iterator[Case]:
        before = self.before
        yield Case("empty", self.text, self.at, self.anchor, "", before)
        done = self.rng.choice(_COMPLETE)
        yield Case("already complete", self.text, self.at, self.anchor, done, before)
        skip = self.rest[self.rng.randint(20, 200) :]
        yield Case("skip", self.text, self.at, self.anchor, skip, before + skip, lossy=True)
        if self.text.kind == "json" and Cut(before).inside_string:
            newline = "\n" + self.rest
            yield Case(
                "newline in string", self.text, self.at, self.anchor, newline, self.text.body
            )
        row = before[before.rfind("\n") + 1 :]
        if (
            row.startswith("|")
            and row.endswith("|")
            and self.rest.startswith("\n|")
            and "-|" not in row
        ):
            eaten = self.rest[1:]
            yield Case("newline eaten", self.text, self.at, self.anchor, eaten, self.text.body)

    def rare(self) -> Iterator[Case]:
        """Manners that were reported once or twice: they count in the ablation alone."""
        before, rest = self.before, self.rest
        for manner, after in self._rare_anchors():
            yield Case(manner, self.text, self.at, self.anchor, after, self.text.body)
        if self.text.kind in ("json", "csv", "html"):
            fenced = f"```{self.text.kind}\n{rest}\n```"
            yield Case("fence around it", self.text, self.at, self.anchor, fenced, self.text.body)
        yield Case(
            "echo, nothing asked", self.text, self.at, None, before[-60:] + rest, before + rest
        )
        yield Case("only an echo", self.text, self.at, self.anchor, before[-80:], before)
        yield Case("only a restart", self.text, self.at, self.anchor, before, before)

    def _rare_anchors(self) -> Iterator[tuple[str, str]]:
        anchor, rest = self.anchor, self.rest
        if not anchor or not anchor.strip():
            return
        yield "anchor in quotes", f'"{anchor}"{rest}'
        yield "anchor in its tags", f"<anchor>{anchor}</anchor>{rest}"
        yield "anchor after an ellipsis", f"...{anchor}{rest}"
        yield "anchor after white space", f"\n\n{anchor}{rest}"
        if (at := anchor.find(" ", 8)) > 0:
            yield "anchor, other white space", f"{anchor[:at]}\n{anchor[at + 1 :]}{rest}"
        if anchor[-1].isspace():
            yield "anchor without its end", anchor.rstrip() + rest


def make_cases(count: int, seed: int) -> list[Case]:
    rng = random.Random(seed)
    texts, places = corpus(rng), boundaries()
    cases: list[Case] = []
    while len(cases) < count:
        text = rng.choice(texts)
        cuts = [at for at in places(text.body) if 600 <= at < len(text.body) - 40]
        if cuts:
            cases += Maker(rng, text, rng.choice(cuts)).cases()
    return cases


def _line(before: str) -> str:
    return before[before.rfind("\n") + 1 :]


def _repeats(before: str, rest: str) -> str | None:
    return rest if any(before.endswith(rest[:size]) for size in range(3, 65)) else None


def _before_what(pattern: str) -> Callable[[str, str], str | None]:
    begins = re.compile(pattern)
    return lambda _, rest: rest if begins.match(rest) else None


def _newline_eaten(before: str, rest: str) -> str | None:
    """A list item, a record or a closing fence without the newline before it."""
    item = re.match(r"\d+\. ", _line(before)) and re.match(r"\n\d+\. ", rest)
    record = re.match(r"\d+,\w+,\w+,[\d.]+,", _line(before)) and rest[0] == "\n"
    return rest[1:] if item or record or rest.startswith("\n```\n") else None


def _space_in_word(before: str, rest: str) -> str | None:
    return (
        " " + rest if before[-1].isalpha() and before[-1].isascii() and rest[0].islower() else None
    )


def _indented_again(before: str, rest: str) -> str | None:
    line = _line(before)
    return line + rest if len(line) > 1 and not line.strip() and not rest[0].isspace() else None


def _space_again(before: str, rest: str) -> str | None:
    return " " + rest if re.search(r"\w $", before) and not rest[0].isspace() else None


def _csv_header_again(before: str, rest: str) -> str | None:
    record = re.match(r"\d+,\w+,\w+,", rest) and before[-1] == "\n"
    return "id,name,city,amount,note\n" + rest if record else None


#: Manners that only some cuts allow: the head of the attempt where the cut is one of them. The
#: exact ones look like another manner, so that a rule might take some of the text.
_SELDOM: dict[str, Callable[[str, str], str | None]] = {
    "exact, text repeats itself": _repeats,
    "exact, before a line of words": _before_what(r"\s*[A-Z][^\n]{4,200}[.:!?]\s*\n"),
    "exact, before a fence": _before_what(r"\s*(```|~~~)"),
    "exact, before white space": _before_what(r"\s"),
    "exact, before a row": _before_what(r"\s*(\||\d+\. )"),
    "newline eaten, item or record": _newline_eaten,
    "space in a word": _space_in_word,
    "indented again": _indented_again,
    "space again": _space_again,
    "CSV header again": _csv_header_again,
}
_NEAR = 300


def make_hard_cases(count: int, seed: int) -> list[Case]:
    """What tells one rule from another: `count` cases of rare manners, and as many exact ones."""
    rng = random.Random(seed)
    texts, places = corpus(rng), boundaries()
    cases: list[Case] = []
    found: dict[str, list[tuple[Text, int, str]]] = defaultdict(list)
    for text in rng.sample(texts, 120):
        body = text.body
        cuts = [at for at in places(body) if 600 <= at < len(body) - 40]
        for at in rng.sample(cuts, min(1, len(cuts)) * count // 800):
            cases += Maker(rng, text, at).rare()
        lines = [end.start() for end in re.finditer("\n", body[600 : len(body) - 40])]
        tried = {*rng.sample(cuts, min(len(cuts), 800)), *(600 + at for at in lines)}
        for at in sorted(tried):
            near, rest = body[at - _NEAR : at], body[at : at + _NEAR]
            for manner, head_of in _SELDOM.items():
                if (head := head_of(near, rest)) is not None:
                    found[manner].append((text, at, head + body[at + _NEAR :]))
    for manner, made in found.items():
        for text, at, after in rng.sample(made, min(len(made), count // 5)):
            anchor = rng.choice((None, choose_anchor(text.body[:at])))
            if not (anchor and after.startswith(anchor)):
                cases.append(Case(manner, text, at, anchor, after, text.body))
    return cases

"""The same cut answers through bare SDKs, a loop around them, four frameworks, and ours.

    python tests/benchmarks/peers.py [--only PEER ...] [--scene SCENE ...]

One command: what is missing is installed into `.venv-peers/`, an environment for each peer, and all
is asked of our simulator on this machine; nothing else is asked. A run of all writes its tables and
the picture into the guide (`design/guide/compared.md`, `design/compared.svg`); no other run does.

An answer is cut after 200 of the simulator's tokens, whatever limit was asked for, and every later
one is not: whoever asks again, gets it. A scenario's name says where that is different. The peers
are in `peer_adapters.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / ".venv-peers"
PAGE, PICTURE = ROOT / "design/guide/compared.md", ROOT / "design/compared.svg"
BEGIN, END = "<!-- written by tests/benchmarks/peers.py -->\n", "<!-- end of what it wrote: {} -->"

SDKS = ("anthropic==2.12.0", "openai==3.54.0", "google-genai==3.4.0")
ENVIRONMENTS: Mapping[str, Sequence[Sequence[str]]] = {
    "sdks": [(*SDKS, "-e", str(ROOT))],
    # The list of LiteLLM's latest asks for a certifi of the month: that of an older one will do.
    "litellm": [("litellm[proxy]==1.106.2",), ("--no-deps", "litellm==1.109.1")],
    "pydantic-ai": [("pydantic-ai-slim[anthropic,google,openai]==2.68.0",)],
    "instructor": [("instructor[anthropic,google-genai]==1.17.0",)],
    "langchain": [
        (
            *("langchain==1.4.7", "langchain-anthropic==1.7.7", "langchain-openai==1.7.3"),
            "langchain-google-genai==4.4.2",
        )
    ],
}
"""Environment -> what pip is given, call by call."""


def ready(name: str) -> Path:
    """Return the Python of an environment, which is made where there is none of these versions."""
    place, wanted = HERE / name, json.dumps(ENVIRONMENTS[name])
    stamp, python = place / "made.json", place / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {name} into {place.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        for given in (("pip>=25",), *ENVIRONMENTS[name]):
            subprocess.run([*pip, *given], check=True)
        stamp.write_text(wanted)
    return python


if __name__ == "__main__" and Path(sys.prefix) != HERE / "sdks":
    python = ready("sdks")  # where we are installed as well, whoever began this
    os.execv(python, [str(python), *sys.argv])

sys.path.insert(0, str(ROOT))

from peer_adapters import KEY, SAVED, Task, router_settings  # noqa: E402

from continuation.simulator import Recorded, Reply, Text, ToolUse  # noqa: E402
from continuation.simulator.common import spent  # noqa: E402
from continuation.simulator.model import Ask, Reciter  # noqa: E402
from continuation.simulator.scenario import Scenario  # noqa: E402
from continuation.testing import ANSWER, Rehearsal  # noqa: E402

# --- the peers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """Who is asked, from which environment, and with which setting, by which page."""

    name: str
    title: str
    environment: str
    packages: Sequence[str]
    """What is told of the versions in there."""
    setting: str
    pages: Sequence[str]


_VENDORS = ("anthropic", "openai", "google-genai")
_GUIDES = (
    "platform.claude.com/docs/en/build-with-claude/handling-stop-reasons",
    "developers.openai.com/api/docs/guides/function-calling",
    "ai.google.dev/gemini-api/docs/function-calling",
)
PEERS = (
    Peer(
        "sdk",
        "plain SDKs",
        "sdks",
        _VENDORS,
        "the loop of each vendor's guide: run the calls, send the results; two retries, which are "
        "the default of anthropic and openai, and `HttpRetryOptions(attempts=3)` of google-genai",
        _GUIDES,
    ),
    Peer(
        "naive",
        "a loop around them",
        "sdks",
        _VENDORS,
        "if the stop reason says truncated: text is appended, followed by “Please continue.”; for "
        "a call, a document, thinking alone or an error, the request is sent again, at most twice, "
        "with four times the limit",
        _GUIDES[:1],
    ),
    Peer(
        "litellm",
        "LiteLLM",
        "litellm",
        ("litellm", "openai"),
        "`Router.acompletion` with `num_retries=2`, `fallbacks` to a second model, which takes "
        "prefills where the vendor has one, and `enable_mid_stream_fallback_continuation` (the "
        "Router's docstring); every format in the shape of Chat; the vendors' loop around it",
        ("docs.litellm.ai/docs/routing", "docs.litellm.ai/docs/completion/reliable_completions"),
    ),
    Peer(
        "proxy",
        "LiteLLM, the proxy",
        "sdks",
        ("litellm",),
        "the same settings in its file; each vendor's SDK sends to it in its own format",
        ("docs.litellm.ai/docs/proxy/reliability",),
    ),
    Peer(
        "pydantic-ai",
        "pydantic-ai",
        "pydantic-ai",
        ("pydantic-ai-slim", *_VENDORS),
        "`Agent(retries=2, capabilities=[ModelFallback(a second model)])`, which by default also "
        "falls back if an answer was truncated; `NativeOutput`",
        ("ai.pydantic.dev/capabilities/model-fallback", "ai.pydantic.dev/output"),
    ),
    Peer(
        "instructor",
        "instructor",
        "instructor",
        ("instructor", *_VENDORS),
        "`create(max_retries=2)`, repeated up to three times by tenacity's decorator; modes "
        "`TOOLS`, `RESPONSES_TOOLS`, `GENAI_STRUCTURED_OUTPUTS`; `create_partial` for streams; "
        "it supports structured output only",
        (
            "python.useinstructor.com/concepts/retrying",
            "python.useinstructor.com/concepts/error_handling",
        ),
    ),
    Peer(
        "langchain",
        "LangChain",
        "langchain",
        (
            "langchain",
            "langchain-anthropic",
            "langchain-openai",
            "langchain-google-genai",
            *_VENDORS,
        ),
        "`create_agent` with `ModelRetryMiddleware(max_retries=2)`, `ProviderStrategy` and "
        "`ModelCallLimitMiddleware(run_limit=8)`",
        ("docs.langchain.com/oss/langchain/middleware/built-in",),
    ),
    Peer(
        "ours",
        "continuation",
        "sdks",
        ("continuation-engine", *_VENDORS),
        "`continuation.wrap(client)` around the plain SDKs, with default settings",
        ("quick-start.md",),
    ),
    Peer(
        "ours-tuned",
        "continuation, all policies",
        "sdks",
        ("continuation-engine",),
        '`truncated_tool_call="complete"`, `complete_seams="any"`, '
        '`truncated_document="complete"`, `less_thinking=True`, `on_failure="raise"`',
        ("../tuning.md",),
    ),
)

# --- what happens to an answer -------------------------------------------------------------------

LIMIT, CEILING, TOKEN_SECONDS, PIECE = 4096, 64_000, 0.0001, 6
"""What is asked for; the most the model writes; how long a token takes; tokens of an event."""
TEXT = ANSWER.rstrip()
"""Without the line's end, which some drop from any text; that is not what is looked for here."""
DOCUMENT = {"title": "Lines", "lines": TEXT.splitlines()}
WRITTEN = {"path": "a.txt", "content": TEXT}
FORMS = ("messages", "chat", "responses", "gemini")


@dataclass(frozen=True)
class Scene:
    """One of `continuation.testing.SCENARIOS`, and what differs; of `kinds`, a peer's first.

    `ceiling`: the model's, where it is less than all need. `lies`: a cut call is said to be whole.
    """

    name: str
    play: str = "cut-text"
    kinds: Sequence[str] = ("text",)
    ceiling: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lies: bool = False


_CALL, _EITHER = ("call",), ("text", "document")
SCENES = (
    Scene("uncut text", "whole"),
    Scene("uncut call", "whole-call", _CALL),
    Scene("uncut document", "whole", ("document",)),
    Scene("text"),
    Scene("long text", "whole", ceiling=400, changes={"manner": "echo-line"}),
    Scene("call", "cut-call", _CALL),
    Scene("large call", "whole", _CALL, ceiling=700, changes={"call": True}),
    Scene("structured", kinds=("document",)),
    Scene("thinking", "thinking-eats-all", _EITHER),
    Scene("drop", "drop", _EITHER),
    Scene("label", "mislabelled", _EITHER),
    Scene("call's label", "cut-call", _CALL, lies=True),
)
"""In the order of the page, which says what happens in each."""


class Stage(Rehearsal):
    """The simulator, playing scenes; it keeps what it said, and takes a model's time for it."""

    def __init__(self) -> None:
        super().__init__("whole", answer=TEXT, arguments=WRITTEN)
        self.said: list[Reply] = []

    def show(self, scene: Scene, kind: str) -> None:
        """Begin a scene anew."""
        self.answer = json.dumps(DOCUMENT) if kind == "document" else TEXT
        self._reciter = Reciter(self.answer, WRITTEN["path"])
        self.play("whole" if scene.play == "whole-call" else scene.play)
        self.scenario = replace(self.scenario, ceiling=scene.ceiling or None, **scene.changes)
        self.scene, self.kind, self.said, self.answered = scene, kind, [], False

    def _reply(self, ask: Ask, scenario: Scenario, attempt: int) -> Reply:
        body, last = self.requests[-1].body or {}, ask.turns[-1]
        if last.results:  # an error is no result: the model calls again, as models do
            ask = replace(ask, turns=[*ask.turns[:-1], replace(last, results=False)])
        if SAVED in json.dumps(body):
            reply = Reply([Text("Done.")])
        elif self.scene.play == "whole-call":
            reply = Reply([ToolUse("Write", WRITTEN)], stop="tool_use")
        else:
            reply = super()._reply(ask, scenario, attempt)
        if self.scene.lies and reply.stop == "max_tokens":
            reply = replace(reply, stop="tool_use")
        if self.kind == "document" and (tool := tool_name(body)):
            reply = called(reply, tool, self.answer)
        self.said.append(reply)
        if self.answered:
            return reply
        if is_streamed(self.requests[-1]):
            return replace(reply, slow=PIECE * TOKEN_SECONDS)
        return replace(reply, delay=spent(reply) * TOKEN_SECONDS)

    def billed(self) -> int:
        """Count the output tokens that a provider bills: of a broken stream, those it had sent."""
        total = 0
        answered = [post for post in self.posts if post.status in (200, None)]
        for reply, request in zip(self.said, answered, strict=True):
            broken = reply.drop is not None and is_streamed(request)
            total += min(spent(reply), request.sent * PIECE) if broken else spent(reply)
        return total


def is_streamed(request: Recorded) -> bool:
    """Whether events are wanted: Gemini says so in its path."""
    return bool((request.body or {}).get("stream")) or "stream" in request.path


def tool_name(body: Mapping[str, Any]) -> str | None:
    """Return the name of the first tool of a request in any format: the shape of a document."""
    tools = body.get("tools") or [{}]
    declared = tools[0].get("functionDeclarations") or [tools[0]]
    name = declared[0].get("name") or declared[0].get("function", {}).get("name")
    return name if name is None else str(name)


def called(reply: Reply, tool: str, whole: str) -> Reply:
    """Write a document as the arguments of the call that asks for it."""
    blocks = list(reply.blocks)
    for place, block in enumerate(blocks):
        if isinstance(block, Text) and block.text and whole.startswith(block.text):
            cut = None if block.text == whole else len(block.text)
            blocks[place] = ToolUse(tool, whole, cut=cut)
            return replace(reply, blocks=blocks, stop="tool_use" if cut is None else reply.stop)
    return reply


ALONE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "LANGSMITH_TRACING": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": str(ROOT),
    "NO_PROXY": "127.0.0.1,localhost",
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
}
"""What keeps a peer on this machine: prices, traces and tokenizers would come from elsewhere."""

# --- one cell ------------------------------------------------------------------------------------

WHOLE, TOLD, SILENT, HALF = "whole", "told", "silent", "half"


@dataclass
class Cell:
    """What became of one answer."""

    peer: str
    form: str
    scene: str
    kind: str
    stream: bool
    outcome: str
    halves: int
    requests: int
    billed: int
    seconds: float
    followed: bool | None
    """Whether the next request was accepted; None: there was nothing to go on from."""
    note: str

    @property
    def like(self) -> tuple[str, str, bool]:
        """Under which its like is found that was not cut."""
        return self.form, self.kind, self.stream

    @property
    def is_cut(self) -> bool:
        return not self.scene.startswith("uncut")


class Asker:
    """The process of a peer."""

    def __init__(self, peer: Peer) -> None:
        script, self.name = Path(__file__).with_name("peer_adapters.py"), peer.name
        self.process = subprocess.Popen(
            [str(ready(peer.environment)), "-W", "ignore", str(script), peer.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(HERE / f"{peer.name}.log").open("w"),
            text=True,
            env={**os.environ, **ALONE},
        )

    def do(self, wanted: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(wanted), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: see {HERE / self.name}.log")
        return dict(json.loads(line))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def tried(stage: Stage, asker: Asker, peer: Peer, url: str, scene: Scene, way: Any) -> Cell:
    """Ask once, and judge what came by what the simulator saw."""
    form, stream = way
    kind = scene.kinds[-1] if peer.name == "instructor" else scene.kinds[0]
    stage.show(scene, kind)
    ceiling = scene.ceiling or CEILING
    task = Task(url, form, kind, stream, min(LIMIT, ceiling), ceiling)
    got = asker.do(vars(task))
    requests, billed = len(stage.posts), stage.billed()
    halves = sum(run != WRITTEN for run in got["runs"])
    exact = {
        "text": got["text"] == TEXT,
        "call": got["runs"] == [WRITTEN],
        "document": got["document"] == DOCUMENT,
    }[kind]
    if halves:
        outcome = HALF
    elif exact and not got["error"]:
        outcome = WHOLE
    else:
        outcome = TOLD if got["error"] or got["cut"] else SILENT
    followed, note = None, got["error"]
    if got["follows"]:
        stage.answered = True  # what the next one takes is not looked at
        went = asker.do("follow")["error"]
        later = stage.posts[requests:]
        followed = bool(later) and later[-1].status == 200
        note = note or ("" if followed else f"next: {went}")
    return Cell(
        peer.name, form, scene.name, kind, stream, outcome, halves, requests, billed,
        got["seconds"], followed, note,
    )  # fmt: skip


@contextmanager
def proxy(url: str) -> Iterator[str]:
    """Run LiteLLM's proxy before the simulator."""
    settings = router_settings(url)
    router = {name: value for name, value in settings.items() if name != "model_list"}
    general = {"master_key": KEY, "disable_spend_logs": True}
    written = {
        "model_list": settings["model_list"],
        "router_settings": router,
        "general_settings": general,
        "litellm_settings": {"telemetry": False},
    }
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        file = Path(folder, "litellm.yaml")
        file.write_text(json.dumps(written))
        free.close()
        program = str(ready("litellm").with_name("litellm"))
        command = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
        settings = {"PATH": os.environ["PATH"], "HOME": folder, **ALONE}
        log = (HERE / "litellm-proxy.log").open("w")
        running = subprocess.Popen(command, cwd=folder, env=settings, stdout=log, stderr=log)
        try:
            ends = time.monotonic() + 120
            while running.poll() is None and time.monotonic() < ends:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness").close()
                    break
                except OSError:
                    time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()
            running.wait(30)
            log.close()


def scenes_of(peer: Peer) -> list[Scene]:
    """Return what a peer has an answer for."""
    return [s for s in SCENES if peer.name != "instructor" or "document" in s.kinds]


def measured(peers: Sequence[Peer], scenes: Sequence[str]) -> list[Cell]:
    """Ask every peer in every scene."""
    cells = list[Cell]()
    with Stage() as stage:
        for peer in peers:
            with ExitStack() as stack:
                url = stack.enter_context(proxy(stage.url)) if peer.name == "proxy" else stage.url
                asker = Asker(peer)
                stack.callback(asker.close)
                ways = list(product(FORMS, (False, True)))
                for way in ways:  # imports, pools: what comes once is nobody's latency
                    for scene in scenes_of(peer)[:1]:
                        tried(stage, asker, peer, url, scene, way)
                for scene, way in product(scenes_of(peer), ways):
                    if scenes and scene.name not in scenes:
                        continue
                    cell = tried(stage, asker, peer, url, scene, way)
                    cells.append(cell)
                    told = "stream" if cell.stream else "body"
                    print(
                        f"{peer.name:12} {scene.name:15} {cell.form:9} {told:6} {cell.outcome:7}"
                        f" {cell.requests} requests {cell.billed:5} billed {cell.seconds:6.2f} s"
                        f" next {cell.followed} {cell.note[:200]!r}",
                        flush=True,
                    )
    return cells


# --- what is written -----------------------------------------------------------------------------

COLUMNS = ("uncut", *(scene.name for scene in SCENES if not scene.name.startswith("uncut")))
_SAID = {WHOLE: "complete", TOLD: "reported", SILENT: "silent", HALF: "half run"}
_LETTERS = {WHOLE: "C", TOLD: "r", SILENT: "S", HALF: "H"}


def of(cells: Sequence[Cell], peer: Peer, column: str = "", form: str = "") -> list[Cell]:
    """Return a peer's cells: in a column, of a format."""
    return [
        cell
        for cell in cells
        if cell.peer == peer.name
        and (column in ("", cell.scene) or (column == "uncut" and not cell.is_cut))
        and form in ("", cell.form)
    ]


def row(*values: object) -> str:
    return f"| {' | '.join(map(str, values))} |"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    return [row(*head), row(*("---" for _ in head)), *(row(*values) for values in rows), ""]


def outcomes(cells: Sequence[Cell]) -> list[str]:
    """How many answers of each peer came to what, scene by scene."""

    def told(found: Sequence[Cell]) -> str:
        counts = Counter(cell.outcome for cell in found)
        if set(counts) == {WHOLE}:
            return f"**{len(found)} complete**"
        return ", ".join(f"{counts[o]} {_SAID[o]}" for o in _SAID if counts[o]) or "–"

    rows = [[peer.title, *(told(of(cells, peer, name)) for name in COLUMNS)] for peer in PEERS]
    return table(("", *COLUMNS), rows)


def costs(cells: Sequence[Cell]) -> list[str]:
    """What each peer's answers cost, against the bare SDK's where nothing is cut."""
    plain = {cell.like: cell for cell in of(cells, PEERS[0], "uncut")}

    def added(found: Sequence[Cell]) -> list[float]:
        return sorted((cell.seconds - plain[cell.like].seconds) * 1000 for cell in found)

    rows = list[Sequence[object]]()
    for peer in PEERS:
        if not of(cells, peer):
            continue
        cut = [cell for cell in of(cells, peer) if cell.is_cut]
        whole = [cell for cell in cut if cell.outcome == WHOLE]
        needed = sum(plain[cell.like].billed for cell in whole)
        counts = Counter(cell.outcome for cell in cut)
        asked = [cell.followed for cell in cut if cell.followed is not None]
        late, usual = added(whole), added(of(cells, peer, "uncut"))
        over = [cell.requests - plain[cell.like].requests for cell in whole]
        rows.append(
            (
                peer.title,
                f"{len(whole)} of {len(cut)}",
                counts[TOLD],
                counts[SILENT],
                sum(cell.halves for cell in cut),
                f"{asked.count(False)} of {len(asked)}" if asked else "–",
                f"{statistics.mean(over):.1f}" if over else "–",
                f"{sum(cell.billed for cell in whole) / needed:.2f}" if needed else "–",
                f"{sum(cell.billed for cell in cut) / needed:.2f}" if needed else "–",
                f"{statistics.median(usual):.0f} ms",
                f"{statistics.median(late):.0f} ms" if late else "–",
                f"{late[-1]:.0f} ms" if late else "–",
            )
        )
    head = (
        *("", "complete", "reported", "silent", "truncated calls executed", "next request refused"),
        *("additional requests", "billed ÷ delivered, complete answers", "all answers"),
        *("added latency: uncut", "truncated and completed, median", "longest"),
    )
    return table(head, rows)


def letters(cells: Sequence[Cell]) -> list[str]:
    """Every cell: a letter for the body, one for the stream."""
    rows = list[Sequence[object]]()
    for peer, form in product(PEERS, FORMS):
        found = {name: of(cells, peer, name, form) for name in COLUMNS}
        said = ("".join(_LETTERS[cell.outcome] for cell in found[name]) for name in COLUMNS)
        rows.append((peer.title, form, *(text or "–" for text in said)))
    return table(("", "", *COLUMNS), rows)


def ours(cells: Sequence[Cell]) -> list[str]:
    """Where we are not whole."""
    lines = list[str]()
    for peer in PEERS[-2:]:
        short = [cell for cell in of(cells, peer) if cell.outcome != WHOLE]
        found = Counter(
            (c.scene, c.outcome, c.form, "stream" if c.stream else "body") for c in short
        )
        scenes = dict.fromkeys((scene, outcome) for scene, outcome, *_ in found)
        for scene, outcome in scenes:
            ways = [f"{form} ({way})" for s, o, form, way in found if (s, o) == (scene, outcome)]
            lines.append(f"- {peer.title}: {scene}, {_SAID[outcome]}: {', '.join(ways)}")
        if refused := [c for c in of(cells, peer) if c.followed is False]:
            named = dict.fromkeys(f"{cell.scene} of {cell.form}" for cell in refused)
            lines.append(f"- {peer.title}: the next request refused: {', '.join(named)}")
    return [*lines, ""]


def versions(peer: Peer) -> str:
    """Ask the environment of a peer what is in it."""
    where = "litellm" if peer.name == "proxy" else peer.environment
    code = (
        "import importlib.metadata as m, sys\n"
        "have = {d.metadata['Name'].lower() for d in m.distributions()}\n"
        "print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:] if n in have))"
    )
    command = [str(ready(where)), "-c", code, *peer.packages]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def settings() -> list[str]:
    """Say who was asked, and how, by whose words."""
    rows = list[Sequence[object]]()
    for peer in PEERS:
        pages = (
            f"[{page.removeprefix('../')}]({page})" if page.endswith(".md") else
            f"[{page}](https://{page})" for page in peer.pages
        )  # fmt: skip
        rows.append((peer.title, versions(peer), peer.setting, ", ".join(pages)))
    return table(("", "versions", "used with", "documented at"), rows)


def written(cells: Sequence[Cell], load: float) -> str:
    """Return the part of the page that is ours to write."""
    python, cores = sys.version.split()[0], os.cpu_count()
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    lines = [
        f"Measured on {when}, with Python {python} on {cores} cores with a load of {load:.1f}: "
        f"{len(cells)} answers.",
        "",
        *("## Results", "", *outcomes(cells)),
        *("## Cost", "", *costs(cells)),
        *("## Where we fall short", "", *ours(cells)),
        *("## Versions and settings", "", *settings()),
        *("## Every answer", "", *letters(cells)),
    ]
    return "\n".join(lines)


def stamped(text: str, picture: str) -> str:
    """Return it between its marks; the second tells whether anyone has changed it since."""
    digest = hashlib.sha256(f"{text}{picture}".encode()).hexdigest()[:16]
    return f"{BEGIN}{text}{END.format(digest)}"


# --- the picture ---------------------------------------------------------------------------------

_INKS = {WHOLE: "#1a7f37", TOLD: "#c8ccd1", SILENT: "#d9822b", HALF: "#8b1a1a"}
_TOLD = {
    WHOLE: "complete",
    TOLD: "incomplete, and reported",
    SILENT: "incomplete, and not reported",
    HALF: "a truncated call was executed",
}
_LEFT, _WIDE, _HIGH, _STEP, _TOP = 172, 54, 26, 58, 66
_FONT = "font-family:system-ui,-apple-system,'Segoe UI',sans-serif"


def svg(cells: Sequence[Cell]) -> str:
    """Draw a tile for each peer and scene, of a stripe for each answer."""
    width, height = _LEFT + _STEP * len(COLUMNS) + 8, _TOP + 34 * len(PEERS) + 56
    body = [_text(12, 24, "The same truncated answers", size=14, weight=600)]
    for number, name in enumerate(COLUMNS):
        first, _, second = name.partition(" ")
        middle = _LEFT + _STEP * number + _WIDE / 2
        body.append(_text(middle, 44, first, size=11, anchor="middle"))
        body.append(_text(middle, 56, second, size=11, anchor="middle"))
    for line, peer in enumerate(PEERS):
        y = _TOP + 34 * line
        body.append(_text(12, y + 17, peer.title))
        for number, name in enumerate(COLUMNS):
            found, x = of(cells, peer, name), _LEFT + _STEP * number
            if not found:
                body.append(_text(x + _WIDE / 2, y + 17, "–", anchor="middle"))
            for place, cell in enumerate(found):
                wide = _WIDE / len(found)
                way = "stream" if cell.stream else "body"
                body.append(
                    f'<rect x="{x + place * wide:.1f}" y="{y}" width="{wide * 0.92:.1f}"'
                    f' height="{_HIGH}" fill="{_INKS[cell.outcome]}"><title>'
                    f"{escape(f'{peer.title}, {name}, {cell.form}, {way}')}: {_TOLD[cell.outcome]}"
                    "</title></rect>"
                )
    x, y = 12, height - 40
    for outcome, ink in _INKS.items():
        body.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{ink}"/>')
        body.append(_text(x + 18, y + 10, _TOLD[outcome]))
        x += 46 + round(6.3 * len(_TOLD[outcome]))
    stripes = "Each stripe is one answer: four formats, each as a body and as a stream."
    body.append(_text(12, height - 10, stripes, ink="#6e7781"))
    counts = (
        f"{peer.title}: {sum(c.outcome == WHOLE for c in of(cells, peer))} of"
        f" {len(of(cells, peer))} complete"
        for peer in PEERS
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%"'
        f' style="max-width:{width}px;{_FONT}" role="img" aria-label="{escape("; ".join(counts))}">'
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>{"".join(body)}</svg>\n'
    )


def _text(
    x: float, y: float, text: str, *, size: int = 12, weight: int = 400, ink: str = "#24292f",
    anchor: str = "start",
) -> str:  # fmt: skip
    return (
        f'<text x="{x:g}" y="{y}" fill="{ink}" font-size="{size}" font-weight="{weight}"'
        f' text-anchor="{anchor}">{escape(text)}</text>'
    )


def main() -> int:
    """Ask, and write down what came; return 1 where an adapter fails though nothing is cut."""
    parser = argparse.ArgumentParser(description="The same cut answers through peers and ours.")
    parser.add_argument("--only", nargs="*", default=[], choices=[peer.name for peer in PEERS])
    parser.add_argument("--scene", nargs="*", default=[], choices=[scene.name for scene in SCENES])
    given = parser.parse_args()
    for peer in PEERS:
        ready(peer.environment)
    cells = measured([p for p in PEERS if p.name in (given.only or [p.name])], given.scene)
    if not given.only and not given.scene:
        text, picture = written(cells, os.getloadavg()[2]), svg(cells)
        head, _, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{head}{stamped(text, picture)}\n", encoding="utf-8")
        PICTURE.write_text(picture, encoding="utf-8")
        print(f"written: {PAGE}, {PICTURE}")
    broken = [cell for cell in cells if not cell.is_cut and cell.outcome != WHOLE]
    for cell in broken:
        print(f"nothing was cut, and it is not whole: {cell}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())

"""A chain after a healed turn: what `previous_response_id` means, and that the server takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.drive_responses import LIMIT, response
from support.drive_responses import said as spoken
from support.examples import examples
from support.sdks.responses import GO, MODEL, posts
from support.sdks.turn import FAST, cut, end
from support.servers import Answer, Canned

import continuation
from continuation import Policy
from continuation.prompts import looks_like_recovery_prompt
from continuation.providers.openai_responses import chain as _responses_chain
from continuation.simulator import Reply, Scenario, Simulator, Thinking, ToolUse

TOOLS: list[Any] = [{"type": "function", "name": "Write", "parameters": {"type": "object"}}]
ARGS = '{"path": "a.txt"}'
NEXT = {"role": "user", "content": "And then?"}
WHOLE = "One fine day, all was well."
RECOVERED = cut(Thinking("Hm."), "One fine day, "), end(Thinking("More."), "all was well.")
ESCALATED = cut(Thinking("Hm."), "One"), end(Thinking("Hm."), WHOLE)
END = end("The end.")
TOP = 128_000


_callers: list[Caller] = []


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Each test is a process of its own."""
    restart()
    yield
    restart()


def restart() -> None:
    """What a process keeps in memory is gone."""
    while _callers:
        _callers.pop().close()
    for store in _responses_chain._stores.values():
        store.close()
    _responses_chain._stores.clear()


class Caller:
    """Someone who chains, with a client of ours."""

    def __init__(self, sim: Simulator, policy: Policy = FAST, key: str = "key") -> None:
        self.bare = openai.OpenAI(base_url=f"{sim.url}/v1", api_key=key, max_retries=0)
        self.client = continuation.wrap(self.bare, config=policy)
        _callers.append(self)

    def close(self) -> None:
        self.client.close()
        self.bare.close()

    def ask(self, *items: Any, after: str | None = None, **more: Any) -> Any:
        asked: dict[str, Any] = {"model": MODEL, "max_output_tokens": 1000, **more}
        asked["input"] = [*items] or [NEXT]
        if after is not None:
            asked["previous_response_id"] = after
        if not asked.pop("stream", False):
            return self.client.responses.create(**asked)
        with self.client.responses.stream(**asked) as stream:
            events = list(stream)
        last: Any = events[-1]
        return last.response

    def seen(self, response: Any) -> list[str]:
        """What the model read before it gave this response, as one text for each item."""
        items = self.bare.responses.input_items.list(response.id, order="asc")
        return [_text(item.to_dict()) for item in items]


@pytest.fixture
def caller(sim: Simulator) -> Caller:
    return Caller(sim)


def _text(item: dict[str, Any]) -> str:
    if item["type"] != "message":
        return f"<{item['type']}>"
    return "".join(part["text"] for part in item["content"])


def without_reasoning(seen: list[str]) -> list[str]:
    return [text for text in seen if text != "<reasoning>"]


# --- with store on --------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["create", "stream"])
@pytest.mark.parametrize("answers", [RECOVERED, ESCALATED], ids=["recovered", "escalated"])
def test_the_model_sees_the_merged_turn_and_no_prompt(
    sim: Simulator, caller: Caller, answers: tuple[Reply, ...], stream: bool
) -> None:
    shown = answers is RECOVERED
    sim.script([*answers, END])
    first = caller.ask(GO, stream=stream, max_output_tokens=TOP if shown else 1000)
    assert first.output_text.endswith("all was well.")
    after = caller.ask(NEXT, after=first.id)
    read = without_reasoning(caller.seen(after))
    assert read == ["Go.", first.output_text, "And then?"]
    assert not any(map(looks_like_recovery_prompt, read))


def test_an_escalated_answer_is_named_not_sent_again(sim: Simulator, caller: Caller) -> None:
    sim.script([cut(Thinking("Hm")), ESCALATED[1], END])
    first = caller.ask(GO, stream=True)
    caller.ask(NEXT, after=first.id)
    asked = posts(sim)[-1]
    assert [item["content"] for item in asked["input"]] == ["And then?"]
    assert asked["previous_response_id"] not in {None, first.id}


def test_a_turn_that_needed_no_healing_is_chained_untouched(sim: Simulator, caller: Caller) -> None:
    sim.script([end("Whole."), END])
    first = caller.ask(GO)
    caller.ask(NEXT, after=first.id)
    assert sim.posts[-1].body is not None
    assert sim.posts[-1].body["previous_response_id"] == first.id


def test_the_output_of_a_call_finds_it_in_the_merged_turn(sim: Simulator, caller: Caller) -> None:
    call = ToolUse("Write", ARGS, id="call_1")
    half = cut("I write. ", replace(call, cut=5))
    sim.script([half, end(Thinking("Hm."), "I write. ", call), end("Done.")])
    first = caller.ask(GO, tools=TOOLS, stream=True)
    assert [item.type for item in first.output] == ["message", "function_call"]
    output = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
    assert caller.ask(output, after=first.id, tools=TOOLS).output_text == "Done."


def test_a_cut_call_that_was_dropped_is_not_owed_an_output(sim: Simulator, caller: Caller) -> None:
    sim.script([cut("I write. ", ToolUse("Write", ARGS, cut=5)), END])
    first = caller.ask(GO, max_output_tokens=TOP)
    assert first.status == "incomplete"
    assert caller.ask(NEXT, after=first.id).output_text == "The end."


def test_healed_turns_in_a_row_are_all_seen(sim: Simulator, caller: Caller) -> None:
    sim.script([*RECOVERED, *RECOVERED, END])
    first = caller.ask(GO, max_output_tokens=TOP)
    second = caller.ask(NEXT, after=first.id, max_output_tokens=TOP)
    last = caller.ask(NEXT, after=second.id)
    told = [WHOLE, "And then?"]
    assert without_reasoning(caller.seen(last)) == ["Go.", *told, *told]


def test_nobody_else_reaches_the_entry(sim: Simulator, caller: Caller) -> None:
    other = Caller(sim, key="other")
    sim.script([*RECOVERED, END])
    first = caller.ask(GO, max_output_tokens=TOP)
    with pytest.raises(openai.BadRequestError, match="not found"):
        other.ask(NEXT, after=first.id)
    assert "One fine day" not in str([post.body for post in sim.posts if post.status != 200])


def test_what_is_compacted_is_the_merged_turn() -> None:
    half = response("1", [spoken("One fine day, ", status="incomplete")], LIMIT)
    rest = response("2", [spoken("all was well.", "msg_2")])
    made = {"id": "comp_1", "object": "response.compaction", "created_at": 1, "output": []}
    told = iter([half, rest, made])
    with (
        Canned(lambda _: Answer(body=next(told))) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="key") as bare,
        continuation.wrap(bare, config=FAST) as client,
    ):
        first = client.responses.create(model=MODEL, input="Go.", max_output_tokens=TOP)
        assert first.output_text == WHOLE
        client.responses.compact(model=MODEL, previous_response_id=first.id)
    asked = server.asked[-1]
    assert asked.path.endswith("/responses/compact")
    assert "previous_response_id" not in asked.body
    assert [_text(item) for item in asked.body["input"][1:]] == [WHOLE]


# --- what is kept where ---------------------------------------------------------------------


def test_a_file_outlives_the_process(sim: Simulator, tmp_path: Path) -> None:
    policy = Policy(chain_store=str(tmp_path / "chains.db"), store_seconds=30)
    sim.script([*RECOVERED, END])
    first = Caller(sim, policy).ask(GO, max_output_tokens=TOP)
    restart()
    again = Caller(sim, policy)
    read = without_reasoning(again.seen(again.ask(NEXT, after=first.id)))
    assert read == ["Go.", WHOLE, "And then?"]


def test_where_nothing_is_kept_the_request_is_refused_with_a_remedy(sim: Simulator) -> None:
    caller = Caller(sim, Policy(chain_store="off"))
    sim.script([*RECOVERED, END])
    first = caller.ask(GO, max_output_tokens=TOP)
    sent = len(sim.posts)
    with pytest.raises(openai.BadRequestError, match="send the whole conversation") as caught:
        caller.ask(NEXT, after=first.id)
    assert caught.value.code == "previous_response_not_found"
    assert first.id in str(caught.value)
    assert len(sim.posts) == sent, "nothing was sent"


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("", "must be 'memory', 'off', a postgresql:// URL or the path of a file"),
        (3, "must be str"),
        ("mysql://me:secret@db/chains", "only servers at postgresql:// are supported"),
        ("postgresql://me:secret@db:port?what=7", "is not a PostgreSQL URL"),
    ],
)
def test_a_store_that_is_none_is_refused(named: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match="chain_store = ") as caught:
        Policy(chain_store=named)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_body_that_no_store_keeps_has_an_id_that_is_refused(
    sim: Simulator, tmp_path: Path
) -> None:
    (tmp_path / "nowhere").write_text("a file, so that no folder can be created")
    caller = Caller(sim, replace(FAST, chain_store=str(tmp_path / "nowhere" / "chains.db")))
    sim.script([*RECOVERED, END])
    first = caller.ask(GO, max_output_tokens=TOP)
    assert first.output_text == WHOLE
    report = continuation.report(first)
    assert report is not None
    assert report.chain == "the chain store did not write (not kept)"
    with pytest.raises(openai.BadRequestError, match="send the whole conversation") as caught:
        caller.ask(NEXT, after=first.id)
    assert caught.value.code == "previous_response_not_found"


def test_a_stream_that_no_store_would_know_stays_as_it_came(sim: Simulator, tmp_path: Path) -> None:
    """Its id is the server's, who has half of it: a later turn would continue from that half."""
    (tmp_path / "nowhere").write_text("a file, so that no folder can be created")
    caller = Caller(sim, replace(FAST, chain_store=str(tmp_path / "nowhere" / "chains.db")))
    sim.script([*RECOVERED, END])
    half = caller.ask(GO, stream=True, max_output_tokens=TOP)
    assert (half.output_text, half.status, len(sim.posts)) == ("One fine day, ", "incomplete", 1)
    report = continuation.report(half)
    assert report is not None
    assert report.rows == ("the chain store failed",)
    assert report.reason == report.chain == "the chain store did not write (not kept)"


def test_a_stream_that_drops_stays_dropped_where_no_store_would_know(
    sim: Simulator, tmp_path: Path
) -> None:
    (tmp_path / "nowhere").write_text("a file, so that no folder can be created")
    caller = Caller(sim, replace(FAST, chain_store=str(tmp_path / "nowhere" / "chains.db")))
    sim.script([end("One fine day, all was well.", drop=6, deltas=8)])
    with pytest.raises(openai.APIConnectionError), continuation.watch() as turns:
        caller.ask(GO, stream=True)
    assert turns[0].rows == ("the chain store failed, and the stream dropped",)


# --- when the server has lost the chain -----------------------------------------------------


def test_a_lost_chain_is_sent_in_full_once(sim: Simulator, caller: Caller) -> None:
    sim.script([*RECOVERED, *RECOVERED])
    first = caller.ask(GO, max_output_tokens=TOP)
    second = caller.ask(NEXT, after=first.id, max_output_tokens=TOP)
    sim.reset()  # the server forgets everything
    sim.script([END])
    last = caller.ask(NEXT, after=second.id)
    assert last.output_text == "The end."
    told = [first.output_text, "And then?"]
    assert without_reasoning(caller.seen(last)) == ["Go.", *told, *told]
    assert len(sim.posts) <= 2


def test_a_lost_chain_of_which_no_content_was_kept_says_how_to_go_on(
    sim: Simulator, caller: Caller
) -> None:
    sim.script([cut(Thinking("Hm")), ESCALATED[1]])
    first = caller.ask(GO, stream=True)
    sim.reset()
    with pytest.raises(openai.BadRequestError, match="send the whole conversation as `input`"):
        caller.ask(NEXT, after=first.id)
    assert len(posts(sim)) == 1


def test_an_output_without_its_call_is_never_sent_without_its_chain(
    sim: Simulator, caller: Caller
) -> None:
    sim.script([*RECOVERED])
    first = caller.ask(GO, max_output_tokens=TOP)
    sim.reset()
    output = {"type": "function_call_output", "call_id": "call_9", "output": "ok"}
    with pytest.raises(openai.BadRequestError, match="call_9"):
        caller.ask(output, after=first.id)
    assert sim.posts == [] or posts(sim)[-1].get("previous_response_id") is not None


def test_what_nobody_knows_stays_the_servers_own_error(sim: Simulator, caller: Caller) -> None:
    sim.script([end("Whole.")])
    first = caller.ask(GO)
    sim.reset()
    with pytest.raises(openai.BadRequestError, match="Previous response with id") as caught:
        caller.ask(NEXT, after=first.id)
    assert caught.value.code == "previous_response_not_found"
    assert len(sim.posts) == 1


# --- with store off: the caller replays items -----------------------------------------------


BEHIND = (
    cut(Thinking("Hm."), "I write. ", ToolUse("Write", ARGS, cut=5)),
    end(Thinking("Hm."), "I write. ", Thinking("So."), ToolUse("Write", ARGS)),
)
TURNS = {
    "recovered": (RECOVERED, TOP),
    "escalated": (ESCALATED, 1000),
    "behind": (BEHIND, 1000),
    "cut call": (BEHIND[:1], TOP),
}


@pytest.mark.parametrize("store", [False, None], ids=["unstored", "stored"])
@pytest.mark.parametrize("stream", [False, True], ids=["create", "stream"])
@pytest.mark.parametrize("name", TURNS)
def test_replayed_items_are_accepted(
    sim: Simulator, caller: Caller, name: str, stream: bool, store: bool | None
) -> None:
    answers, limit = TURNS[name]
    sim.scenario = Scenario(strict_signatures=True)
    sim.script([*answers, END])
    more: dict[str, Any] = {"tools": TOOLS, **({} if store is None else {"store": store})}
    first = caller.ask(GO, stream=stream, max_output_tokens=limit, **more)
    after = caller.ask(GO, *said(first), *answered(first), **more)
    assert after.output_text == "The end."


def said(response: Any) -> list[dict[str, Any]]:
    """The output as a client sends it back, without what the SDK's parser adds."""
    items = [item.to_dict(exclude_none=True) for item in response.output]
    for item in items:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or []:
            part.pop("parsed", None)
    return items


def answered(response: Any) -> list[Any]:
    """What a client says next: the outputs of the calls, or else a word."""
    calls = [item.call_id for item in response.output if item.type == "function_call"]
    outputs = [{"type": "function_call_output", "call_id": c, "output": "ok"} for c in calls]
    return outputs or [NEXT]


# --- any interleaving -----------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["whole", "recovered", "escalated", "call", "cut call", "behind"]),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


def script(kind: str, number: int) -> tuple[list[Reply], int]:
    """Return what the model says in a turn of this kind, and the limit that makes it so."""
    text, call = f"Turn {number} is told here, ", ToolUse("Write", ARGS, id=f"call_{number}")
    thought, half = Thinking("Hm."), replace(call, cut=5)
    called = end(thought, text, thought, call, stop="tool_use")
    return {
        "whole": ([end(thought, text)], 1000),
        "recovered": ([cut(thought, text), end(thought, "and on.")], TOP),
        "escalated": ([cut(Thinking("H", None)), end(thought, text)], 1000),
        "call": ([cut(thought, text), end(thought, "so.", call, stop="tool_use")], TOP),
        "cut call": ([cut(thought, text, half)], TOP),
        "behind": ([cut(thought, text, half), called], 1000),
    }[kind]


class Token(httpx2.Auth):
    """Says who asks when the request leaves, with a token it fetches first."""

    def __init__(self, server: str) -> None:
        self.server, self.who, self.fetched = server, "mine", set[str]()

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        if self.who not in self.fetched:
            answer = yield httpx2.Request("POST", f"{self.server}/token", json={"for": self.who})
            self.fetched.add(self.who)
            assert answer.status_code == 404
        request.headers["Authorization"] = f"Bearer {self.who}"
        yield request


class Doorman(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Says who asks behind everything that an HTTP client does."""

    def __init__(self, auth: Token) -> None:
        self.auth, self.inner = auth, httpx2.HTTPTransport()
        self.inner_async = httpx2.AsyncHTTPTransport()

    def named(self, request: httpx2.Request) -> httpx2.Request:
        headers = {**request.headers, "authorization": f"Bearer {self.auth.who}"}
        return httpx2.Request(request.method, request.url, headers=headers, content=request.content)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.inner.handle_request(self.named(request))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self.inner_async.handle_async_request(self.named(request))

    def close(self) -> None:
        self.inner.close()

    async def aclose(self) -> None:
        await self.inner_async.aclose()


def door(way: str, auth: Token, *, asynchronous: bool) -> dict[str, Any]:
    """Return what makes an HTTP client say who asks, in one of the ways there are."""

    def hook(request: httpx2.Request) -> None:
        request.headers["Authorization"] = f"Bearer {auth.who}"

    async def later(request: httpx2.Request) -> None:
        hook(request)

    hooks = {"request": [later if asynchronous else hook]}
    ways = {"auth": auth, "event_hooks": hooks, "transport": Doorman(auth)}
    return {way: ways[way]}


@pytest.mark.parametrize("way", ["auth", "event_hooks", "transport"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_another_tenant_behind_the_same_placeholder_gets_the_servers_answer(
    sim: Simulator, way: str, asynchronous: bool
) -> None:
    sim.script([*RECOVERED, END])
    auth = Token(sim.url)
    asked: dict[str, Any] = {"model": MODEL, "max_output_tokens": 1000}

    async def main() -> None:
        """Ask asynchronously where this is wanted; what waits for nothing is as good as sync."""
        kinds: Any = (openai.OpenAI, httpx2.Client)
        if asynchronous:
            kinds = (openai.AsyncOpenAI, httpx2.AsyncClient)
        http = kinds[1](**door(way, auth, asynchronous=asynchronous))
        bare = kinds[0](base_url=f"{sim.url}/v1", api_key="any", max_retries=0, http_client=http)
        client = continuation.wrap(bare, config=FAST, escalate=False)

        async def ask(**more: Any) -> Any:
            said = client.responses.create(**asked, **more)
            return await said if asynchronous else said

        try:
            healed = await ask(input=[GO])
            await ask(input=[NEXT], previous_response_id=healed.id)
            auth.who = "yours"
            with pytest.raises(openai.BadRequestError, match="not found"):
                await ask(input=[NEXT], previous_response_id=healed.id)
        finally:
            await http.aclose() if asynchronous else http.close()

    asyncio.run(main())
    named = {name: [p for p in sim.posts if name in str(p.headers)] for name in ("mine", "yours")}
    assert "One fine day" in str(named["mine"][-1].body)
    assert "One fine day" not in str([post.body for post in named["yours"]])


@given(steps=STEPS, chained=st.booleans())
@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_interleaving_gives_requests_that_the_server_accepts(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, bool, bool]],
    chained: bool,
) -> None:
    """`steps`: what the turn is, whether it is streamed, whether the process restarts after it."""
    path = tmp_path_factory.mktemp("chains") / "chains.db"
    policy = replace(FAST, chain_store=str(path), store_seconds=30, remember_limit=False)
    with Simulator(scenario=Scenario(strict_signatures=True)) as sim:
        caller = Caller(sim, policy)
        history, brought, last = [GO], list[Any]([GO]), None
        for number, (kind, stream, restarts) in enumerate(steps):
            answers, limit = script(kind, number)
            sim.script(answers)
            more: dict[str, Any] = {"tools": TOOLS, "stream": stream, "max_output_tokens": limit}
            if chained:
                response = caller.ask(*brought, after=last, **more)
            else:
                response = caller.ask(*history, **more, store=False)
            brought, last = answered(response), response.id
            history = [*history, *said(response), *brought]
            if restarts:
                restart()
                caller = Caller(sim, policy)
        assert all(post.status == 200 for post in sim.posts), [p.status for p in sim.posts]
        if chained:
            sim.script([END])
            after = caller.ask(*brought, after=last, tools=TOOLS)
            read = caller.seen(after)
            assert not any(map(looks_like_recovery_prompt, read))
            told = [text for text in read if text.startswith("Turn")]
            assert [text[:6] for text in told] == [f"Turn {n}" for n in range(len(steps))]

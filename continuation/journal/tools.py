"""Tools that run at most once.

The intent is durable before a tool begins, and the result before the call returns. So a call
without an intent did not run. A call with an intent and no result may have run, in full or in part.
It is not run again, unless the caller says that this does no harm (`idempotent`) or how to find out
(`verify`). A crash between an effect and its record cannot be detected here, so nothing here is
"exactly once".
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio

from continuation.history.wordings import WORDINGS, Reason
from continuation.journal.errors import Fenced, JournalError, OutcomeUnknown
from continuation.providers.contract import ParsedCall

if TYPE_CHECKING:
    from concurrent.futures import Future

    from continuation.journal.journal import Journal

logger = logging.getLogger("continuation")

_ALIVE = 10.0
"""Seconds between records that a tool is still running."""
_UNKNOWN = WORDINGS[Reason.STARTED_UNKNOWN]


class ToolRun:
    """The run of one tool call, as a context. Check `fresh`: `with` cannot skip its body.

    with journal.tool(call) as run:
        if run.fresh:
            run.check()  # this process may have been suspended, and taken for dead
            run.result = send_mail(..., idempotency_key=run.key)
    use(run.result)
    """

    def __init__(self, journal: Journal, call: ParsedCall, *, idempotent: bool) -> None:
        self.call = call
        self.fresh = False
        """Whether to run the tool: it has not begun before, or it may be run again."""
        self.key = f"{journal.session}/{call.id}"
        """The idempotency key, equal for each run of this call: a service can detect a repeat."""
        self.fencing_token = journal.fencing_token
        """Grows with each owner of the session."""
        self.result: Any = None
        """The call's result. Set it if `fresh`; otherwise it is the recorded one."""
        self._journal = journal
        self._idempotent = idempotent
        self._over = threading.Event()

    def check(self) -> None:
        """Raise `Fenced` if another process owns the session now.

        Call it just before the effect. It stops a process that was suspended in its tool and taken
        for dead. It reads the store, and raises `JournalError` if it cannot.
        """
        self._journal.check_owner()

    def _start(self) -> Future[None] | None:
        """Decide whether to run it; return the future of its intent; `None`: do not run it."""
        began, number = self._journal.state_of(self.call.id)
        if number is not None:
            record = self._journal.recorded(number)
            self.result = record.get("value")
            return None
        if began and not self._idempotent:
            self.result = _UNKNOWN
            return None
        return self.begin()

    def begin(self) -> Future[None]:
        """Record the intent to run it. The future ends when the record is durable."""
        self.fresh = True
        terms = {"name": self.call.name, "idempotent": self._idempotent}
        return self._journal.record("intent", self.call.id, terms)

    def _started(self) -> None:
        if self.fresh:
            threading.Thread(target=self._live, name="journal-tool", daemon=True).start()

    def _live(self) -> None:
        while not self._over.wait(_ALIVE):
            try:
                self._journal.record("active", self.call.id, None)
            except JournalError:
                return

    def end(self, error: BaseException | None) -> Future[None] | None:
        """Record the result; `error`: what the tool raised. `None`: nothing is recorded."""
        self._over.set()
        if not self.fresh:
            return None
        if error is not None and not isinstance(error, Exception):
            return None  # the tool was interrupted: its outcome is unknown
        value = self.result if error is None else f"{type(error).__name__}: {error}"
        record = self._journal.result_of(self.call, value, failed=error is not None)
        try:
            return self._journal.record("result", self.call.id, record)
        except Fenced:
            raise
        except Exception as failure:  # closed, or its codec failed; the caller has the result
            self._journal.failed(failure)
            return None

    def __enter__(self) -> ToolRun:
        self._journal.wait(self._start())
        self._started()
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        wait_for_result(self.end(error))

    async def __aenter__(self) -> ToolRun:
        await anyio.to_thread.run_sync(lambda: self._journal.wait(self._start()))
        self._started()
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        done = self.end(error)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(wait_for_result, done)


def wait_for_result(done: Future[None] | None) -> None:
    """Wait until a result is durable. The journal logs and repeats failures. Raises `Fenced`."""
    if done is not None:
        with suppress(Exception):
            done.result()
        if isinstance(error := done.exception(), Fenced):
            raise error


def is_asynchronous(run: object) -> bool:
    """Whether calling it returns a coroutine."""
    called = getattr(run, "__call__", None)  # noqa: B004 - not whether there is one
    return inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(called)


class Runner:
    """Runs a function in a `ToolRun`, for `Journal.call`."""

    def __init__(
        self,
        journal: Journal,
        call: object,
        run: Callable[..., Any],
        *,
        idempotent: bool,
        verify: Callable[..., Any] | None,
    ) -> None:
        if not callable(run):
            message = f"run = {run!r}: must be callable with the call"
            raise TypeError(message)
        self.asynchronous = is_asynchronous(run)
        self.raised: Exception | None = None
        """What the function raised."""
        self._call, self._run, self._verify = call, run, verify
        self._run_of_tool = journal.tool(call, idempotent=idempotent)
        self._journal = journal

    def now(self) -> Any:
        """Run the function in this thread; return the call's result."""
        with self._run_of_tool as tool:
            if self._unsure:
                self._settle(self._verified())
            if tool.fresh:
                with self._noting():
                    tool.result = self._ask(self._run)
        return tool.result

    async def asynchronously(self) -> Any:
        """Run the coroutine function in this task; return the call's result."""
        async with self._run_of_tool as tool:
            if self._unsure:
                try:
                    awaited = self._ask(self._verify)
                    done = await awaited if inspect.isawaitable(awaited) else awaited
                except OutcomeUnknown:
                    done = _UNKNOWN
                await anyio.to_thread.run_sync(self._settle, done)
            if tool.fresh:
                with self._noting():
                    tool.result = await self._ask(self._run)
        return tool.result

    @contextmanager
    def _noting(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            self.raised = error
            raise

    @property
    def _unsure(self) -> bool:
        tool = self._run_of_tool
        return self._verify is not None and not tool.fresh and tool.result == _UNKNOWN

    def _verified(self) -> Any:
        try:
            return self._ask(self._verify)
        except OutcomeUnknown:
            return _UNKNOWN

    def _settle(self, done: Any) -> None:
        """Use what `verify` returned. `None`: run the tool. Otherwise record it as the result."""
        tool = self._run_of_tool
        if done is None:
            self._journal.wait(tool.begin())
            return
        tool.result = done
        if done != _UNKNOWN:
            record = self._journal.result_of(tool.call, done, failed=False)
            self._journal.wait(
                self._journal.record("result", tool.call.id, record), "its result is not recorded"
            )

    def _ask(self, function: Callable[..., Any] | None) -> Any:
        """Call a function with the call, and with those extra arguments that it accepts."""
        assert function is not None
        tool = self._run_of_tool
        extra: dict[str, Any] = {
            "idempotency_key": tool.key,
            "fencing_token": tool.fencing_token,
            "tool_run": tool,
        }
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            return function(self._call)
        any_keyword = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        named = {
            name: value
            for name, value in extra.items()
            if name in parameters or (any_keyword and value is not tool)
        }
        positional = [
            each
            for name, each in parameters.items()
            if name not in extra and each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}
        ]
        any_positional = any(each.kind is each.VAR_POSITIONAL for each in parameters.values())
        return function(*([self._call] if positional or any_positional else []), **named)


class Settling:
    """Runs the calls of the last answer one after the other, for `Journal.settle`."""

    def __init__(
        self,
        journal: Journal,
        run: Callable[..., Any],
        *,
        idempotent: Collection[str],
        verify: Callable[..., Any] | None,
    ) -> None:
        if isinstance(idempotent, str):
            message = f"idempotent = {idempotent!r}: must be a collection of tool names"
            raise TypeError(message)
        self._journal = journal
        self._run, self._idempotent, self._verify = run, idempotent, verify

    def now(self) -> list[dict[str, Any]]:
        """Run a function for each call; return the messages of the next request."""
        for call in self._journal.calls_to_settle():
            with self._runner(call) as runner:
                runner.now()
        return self._journal.history()

    async def asynchronously(self) -> list[dict[str, Any]]:
        """Run a coroutine function for each call; return the messages of the next request."""
        for call in await anyio.to_thread.run_sync(self._journal.calls_to_settle):
            with self._runner(call) as runner:
                await runner.asynchronously()
        return await anyio.to_thread.run_sync(self._journal.history)

    @contextmanager
    def _runner(self, call: ParsedCall) -> Generator[Runner]:
        """Lend a runner. An exception of its function becomes the call's result."""
        idempotent = call.name in self._idempotent
        runner = Runner(self._journal, call, self._run, idempotent=idempotent, verify=self._verify)
        try:
            yield runner
        except JournalError:
            raise
        except Exception as error:
            if error is not runner.raised:
                raise
            name, kind = self._journal.session, type(error).__name__
            logger.warning(
                "tool failed: session=%s tool=%s error=%s (recorded as its result)",
                name,
                call.name,
                kind,
            )

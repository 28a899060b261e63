"""Where a later attempt's text meets the turn's: through a seam, behind what was shown, or plainly.

One `TextSplicer` serves one attempt, and what the provider's own hops add to it. What text passes,
and where, is the seam module's work; here is only the order of things in the sink.
"""

from __future__ import annotations

from continuation.answer.blocks import Block
from continuation.answer.client_stream import ClientStream, merge_deltas, text_of
from continuation.seams.seam import Follow, Seam, Verdict
from continuation.types import Json, Mode, Resume
from continuation.wire.json_values import as_text


class TextSplicer:
    """Puts text into the sink so that it goes on from what is there."""

    def __init__(self, sink: ClientStream, resume: Resume | None = None) -> None:
        """Begin where the sink stands; without `resume` text goes on as it comes."""
        self._sink = sink
        self._anchor = resume.anchor if resume is not None else None
        self._follow: Follow | None = None
        self._seam: Seam | None = None
        self._before = ""
        """What the seam joins the attempt's text to."""
        self._joined: Block | None = None
        """The block whose end the seam may take back, until it has decided."""
        self._like: Block | None = None
        """The block of the attempt whose text is being joined..."""
        self._said = 0
        """...how much of it went into the seam..."""
        self._aside: list[Json] = []
        """...and what is said of places in it, until the seam tells where they are."""
        if resume is None:
            return
        if resume.mode is Mode.APPEND_TAIL:
            self._follow = Follow(text_of(sink))
        elif resume.mode is Mode.RECOVERY and not resume.glue:
            sink.stop()
        elif resume.mode is Mode.RECOVERY and (before := sink.tail):
            self._before, self._seam = before, self._through(before, resume)

    def _through(self, before: str, resume: Resume) -> Seam:
        joined = self._joined = self._sink.open_text
        unshown = 0
        if joined is not None:
            merge_deltas(joined, joined.text)  # it is read again and again from here on
            unshown = 0 if self._sink.streamed else len(joined.text)
        return Seam(
            before,
            anchor=resume.anchor,
            prefilled=resume.prefilled,
            unshown=unshown,
            hold=resume.hold,
        )

    def hop(self) -> None:
        """The same answer goes on in another response, and so does a seam it has not decided."""
        if not self.waits:
            self._seam = self._joined = None

    def leave(self) -> None:
        """The turn goes on from here in another attempt: what is left needs no joining."""
        self._follow = self._seam = self._joined = None

    # --- how it stands -------------------------------------------------------------------------

    @property
    def verdict(self) -> Verdict | None:
        """How the texts meet, once that is decided."""
        return self._seam.verdict if self._seam is not None else None

    @property
    def waits(self) -> bool:
        """Whether how the texts meet is still to be decided."""
        return self._seam is not None and self._seam.verdict is None

    @property
    def stalled(self) -> bool:
        """Whether the attempt only repeats what was there."""
        return self._seam is not None and self._seam.stalled

    @property
    def behind(self) -> bool:
        """Whether the attempt has not yet said all that was shown before it."""
        return self._follow is not None and not self._follow.done

    # --- text ----------------------------------------------------------------------------------

    def say(self, block: Block) -> None:
        """Show of a text block what has come of it, in the text before it."""
        if not block.begun:
            block.begun = True
            self._begin(block)
            self._take(as_text(block.start.get("text")))
        for delta in block.deltas[block.shown :]:
            if delta.get("type") == "text_delta":
                self._take(as_text(delta.get("text")))
            elif not self.behind:  # else it is of text that was shown
                self._aside.append(delta)
                if not self.waits:
                    self.place_asides()
        block.shown = len(block.deltas)

    def _begin(self, block: Block) -> None:
        if self._like is not None and self._like.phase != block.phase:
            self.end()  # a text of another phase is no rest of it
        self._like, self._said, self._aside = block, 0, []
        before = self._sink.open_text
        phase = before.phase if before is not None else ""
        if phase and block.phase not in {"", phase}:
            self._sink.stop()

    def _take(self, piece: str) -> None:
        if piece:
            self._said += len(piece)
            self.write(self._passed(piece))

    def whole(self, text: str) -> str:
        """Return of a text that comes in one piece what may be shown.

        One that is in the text before may be half of what the attempt was asked to repeat first.
        """
        passed = self._passed(text)
        more = self.waits and text.strip() in self._before
        return passed if more else passed + self._last()

    def end(self) -> None:
        """A text has ended: show what its seam still holds."""
        self.write(self._last())
        self.place_asides()

    def finish(self, said: str, *, ended: bool) -> None:
        """The attempt is over; `ended`: as it should. `said`: all its text."""
        if self._seam is None:
            return
        if not ended and self._anchor is not None and self.waits and said.strip() in self._before:
            return  # it broke off while it repeated what it was asked to, and perhaps more
        self.write(self._last())

    def place_asides(self) -> None:
        """Show what is said of a text; `by`: how far on in the turn's text its places are."""
        asides, self._aside = self._aside, []
        joined = self._sink.open_text
        if joined is None:
            return
        by = len(joined.text) - self._said if asides else 0
        for delta in asides:
            placed = {**delta, "by": by} if by else delta
            if self._follow is None or placed not in joined.deltas:  # else it is told again
                self._sink.delta(placed)

    def write(self, piece: str) -> None:
        """Show text that has passed."""
        if self._joined is not None and self._seam is not None and not self.waits:
            self._sink.take_back(self._seam.take_back)
            self._joined = None
        self._sink.text(piece, self._like)

    def _passed(self, piece: str) -> str:
        if self._follow is not None:
            return self._follow.feed(piece)
        return piece if self._seam is None else self._seam.feed(piece)

    def _last(self) -> str:
        return self._seam.finish() if self._seam is not None else ""

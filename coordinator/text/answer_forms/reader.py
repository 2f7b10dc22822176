"""An answer's text as it comes, apart: what is thought, what is said, and which tools are called."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.text.answer_forms import harmony
from coordinator.text.answer_forms.calls import Calls
from coordinator.text.answer_forms.feed import SPACE, Feed, MalformedError, Waiting
from coordinator.text.answer_forms.form import AnswerForm
from layerline.answer import ToolCallPiece
from layerline.chat import ToolRules


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of an answer, of one of the kinds of a `Piece`."""

    kind: str
    text: str = ""
    tool_call: ToolCallPiece | None = None


class AnswerReader:
    """Text in by `push`, parts out; nothing of it is lost but markers, and white space round thoughts.

    `thinks` says that the prompt has opened the model's thoughts already.
    """

    def __init__(self, form: AnswerForm, rules: ToolRules | None, *, thinks: bool = False) -> None:
        self.thinking = thinks  # whether what comes next is thought
        self._form = form
        self._parts: list[Part] = []
        self._feed = Feed()
        self._calls = Calls(rules, self._tell_call)
        self._over = False
        self._parallel = rules is None or rules.parallel
        self._space = ""  # that was held back, as it may be the end of a thought
        self._reading = self._read()
        self._step()

    @property
    def has_called(self) -> bool:
        """Whether any tool was called."""
        return self._calls.count > 0

    @property
    def is_over(self) -> bool:
        """Whether nothing further is wanted: one call was made, and no more may be."""
        return self._over

    def push(self, text: str) -> list[Part]:
        """What has become certain with more text."""
        self._feed.put(text)
        return self._step()

    def flush(self) -> list[Part]:
        """What was held back, at the end of the answer."""
        self._feed.ended = True
        return self._step()

    def _step(self) -> list[Part]:
        next(self._reading, None)
        parts, self._parts = self._parts, []
        return parts

    def _read(self) -> Waiting[None]:
        if self._form.harmony:
            yield from harmony.answer(self._feed, self._calls, self._tell_text, self._tell_thought)
            yield from self._rest()
            return
        if self._form.thoughts is not None:
            yield from self._thoughts(*self._form.thoughts)
        self.thinking = False
        if self._form.tools is None:
            yield from self._rest()
        elif self._form.tools.whole:
            yield from self._whole_call()
        else:
            yield from self._marked_calls()

    def _thoughts(self, begin: str, end: str) -> Waiting[None]:
        """Reads thoughts, if the answer begins with any."""
        self._feed.mark()
        if not self.thinking:
            yield from self._feed.skip_space()
            if not (yield from self._feed.begins_with(begin)):
                self._feed.give_back()
                return
            self._feed.take(len(begin))
            self.thinking = True
        yield from self._feed.skip_space()
        yield from self._feed.until(end, tell=self._tell_thought)
        self._space = ""
        self.thinking = False
        yield from self._feed.skip_space()

    def _rest(self) -> Waiting[None]:
        while (yield from self._feed.peek()):
            self._tell_text(self._feed.take(1 << 20))

    def _marked_calls(self) -> Waiting[None]:
        assert self._form.tools is not None
        while True:
            _, marker = yield from self._feed.until(*self._form.tools.begins, tell=self._tell_spaced)
            if not marker:
                self._tell_spaced("", ends=True)
                return
            yield from self._call(marker)
            if self._over:
                return

    def _whole_call(self) -> Waiting[None]:
        assert self._form.tools is not None
        self._feed.mark()
        yield from self._feed.skip_space()
        if (yield from self._feed.begins_with(*self._form.tools.begins)):
            yield from self._call("")
        else:
            self._feed.give_back()
        yield from self._rest()

    def _call(self, marker: str) -> Waiting[None]:
        """Reads calls behind `marker`; what is none is text, with the marker."""
        assert self._form.tools is not None
        self._feed.mark()
        before = self._calls.count
        try:
            yield from self._form.tools.read(self._feed, self._calls)
        except MalformedError:
            if self._calls.count == before:
                self._tell_spaced(marker)
                self._feed.give_back()
                yield from self._passed_one()
                return
        self._space = ""
        self._over = self._calls.count > before and not self._parallel

    def _passed_one(self) -> Waiting[None]:
        """Tells one character, so that what was no call is not tried again at once."""
        if (yield from self._feed.peek()):
            self._tell_spaced(self._feed.take(1))

    def _tell_text(self, text: str) -> None:
        self._parts.append(Part(kind="text", text=text))

    def _tell_spaced(self, text: str, *, ends: bool = False) -> None:
        """Tells text, and holds back white space that may stand before a call."""
        text = self._space + text
        told = text if ends else text.rstrip(SPACE)
        self._space = text[len(told) :]
        if told:
            self._tell_text(told)

    def _tell_thought(self, text: str) -> None:
        text = self._space + text
        told = text.rstrip(SPACE)
        self._space = text[len(told) :]
        if told:
            self._parts.append(Part(kind="thinking", text=told))

    def _tell_call(self, piece: ToolCallPiece) -> None:
        self._parts.append(Part(kind="tool_call", tool_call=piece))

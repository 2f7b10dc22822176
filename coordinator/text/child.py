"""The child process that tokenises prompts and renders chats: `python -m coordinator.text.child`.

Tokenizers and templates are programs from a model file: a pattern can take for ever, a normaliser can fill the memory,
and the library they run in can panic. So they run in this process, which limits itself, writes no files, and which its
owner (`coordinator.text.process`) ends at a deadline.

Structures that answers are to have are compiled here before they are in the coordinator, for the same reason.

The first message on stdin is {json, vocabulary}, the tokenizer; then each {number, task, …} is answered by
{number, …} on stdout: what the task gives, or {error: KIND, reason}. The tokenizer is read when it is first needed.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any

from coordinator.text.frames import Message, packed, read_frame
from coordinator.text.token_text import COUNT, OversizeTokenError, TokenText, UnknownDecoderError
from layerline.limits import forbid_files, limit_further
from layerline.printable import printable
from layerline.requests import Structure

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MEBIBYTE = 1 << 20
LOAD_MEMORY_BYTES = 1024 * MEBIBYTE  # a vocabulary of 262,144 takes 520 MiB
LOAD_PROCESSOR_S = 20.0
RENDER_MEMORY_BYTES = 512 * MEBIBYTE
RENDER_PROCESSOR_S = 5.0
TRY_MEMORY_BYTES = 512 * MEBIBYTE
TRY_PROCESSOR_S = 8.0
ENCODE_MEMORY_BYTES = 256 * MEBIBYTE
ENCODE_MEMORY_BYTES_PER_BYTE = 256  # of text, which measures 190 at most
ENCODE_PROCESSOR_S = 5.0
ENCODE_PROCESSOR_S_PER_BYTE = 2e-6  # four times what is measured


class Text:
    """The tokenizer in `setup`, and templates."""

    def __init__(self, setup: Message) -> None:
        self._setup = setup
        self._tokenizer: Tokenizer | None = None

    def answer(self, request: Message) -> Message:
        """What the task gives, or the kind of the error and its reason."""
        try:
            return self._work(request)
        except (UnknownDecoderError, OversizeTokenError) as error:
            return {"error": type(error).__name__, "reason": str(error)}
        except MemoryError:
            return {"error": "limit", "reason": "it takes too much memory"}
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # a panic of the library is not even an Exception
            return {"error": "panic" if not isinstance(error, Exception) else "failed", "reason": str(error)[:500]}

    def _work(self, request: Message) -> Message:
        task = request["task"]
        if task == "render":
            from coordinator.text.template import render_answer  # noqa: PLC0415  # prompts of tokens need none

            limit_further(memory_bytes=RENDER_MEMORY_BYTES, processor_s=RENDER_PROCESSOR_S)
            return dict(render_answer(request))
        if task == "try":
            from coordinator.text.structure.grammars import tried  # noqa: PLC0415  # prompts need none

            limit_further(memory_bytes=TRY_MEMORY_BYTES, processor_s=TRY_PROCESSOR_S)
            tried(Structure(kind=request["kind"], text=request["text"]))
            return {"tried": True}
        if task == "tokens":
            return TokenText.of_tokenizer(self._loaded(), self._setup["vocabulary"]).message()
        return self._encode(request["text"], request["most_tokens"])

    def _encode(self, text: str, most_tokens: int) -> Message:
        """The ids of `text` as an array of 32-bit numbers; of more than `most_tokens` only how many there are."""
        tokenizer = self._loaded()
        nbytes = len(text.encode())
        limit_further(
            memory_bytes=ENCODE_MEMORY_BYTES + nbytes * ENCODE_MEMORY_BYTES_PER_BYTE,
            processor_s=ENCODE_PROCESSOR_S + nbytes * ENCODE_PROCESSOR_S_PER_BYTE,
        )
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
        if len(encoding) > most_tokens:
            return {"count": len(encoding)}
        return {"ids": array(COUNT, encoding.ids).tobytes()}

    def _loaded(self) -> Tokenizer:
        if self._tokenizer is None:
            limit_further(memory_bytes=LOAD_MEMORY_BYTES, processor_s=LOAD_PROCESSOR_S)
            from tokenizers import Tokenizer  # noqa: PLC0415  # templates need none

            self._tokenizer = Tokenizer.from_str(self._setup.pop("json"))
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
        return self._tokenizer


def _sendable(answer: Message) -> Message:
    reason = answer.get("reason")
    return {**answer, "reason": printable(reason)} if isinstance(reason, str) else answer


def main() -> None:
    """Answers requests until stdin ends."""
    forbid_files()
    setup = read_frame(sys.stdin.buffer)
    if setup is None:
        return
    text = Text(setup)
    while (request := read_frame(sys.stdin.buffer)) is not None:
        number: Any = request["number"]
        sys.stdout.buffer.write(packed({"number": number, **_sendable(text.answer(request))}))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

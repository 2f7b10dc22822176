"""Makes a model's card in a process of its own: `python -m layerline.models.index_child PATH NAME CACHE CARD`.

Hashing takes every weight through memory and a while; a node or a coordinator stays small and answers meanwhile. Prints
one JSON list a line: ["progress", done, total] now and then, and at the end ["error", code, message, remedy] or
["card"], once the card lies in the file CARD.

Until the first weights are hashed the headers are read, which somebody may have made to take all memory and time: so
long the process limits itself.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from layerline.errors import LayerlineError, ModelCorruptError, ModelUnreadableError
from layerline.hosting.child import end_with_parent
from layerline.limits import lift_limits, limit_further
from layerline.models.card import ModelCard
from layerline.models.card_cache import CardCache
from layerline.models.fields import REMEDY
from layerline.models.index import index_model
from layerline.models.unreadable import unreadable

PROGRESS_INTERVAL_S = 0.1
HEADERS_MEMORY_BYTES = 768 << 20  # a tokenizer of 262,144 tokens takes 520 MiB
HEADERS_PROCESSOR_S = 60.0


def main() -> None:
    """Indexes the model named on the command line."""
    end_with_parent()
    path, name, cache, card_path = sys.argv[1:]
    told_at = 0.0

    def report(done_bytes: int, total_bytes: int) -> None:
        nonlocal told_at
        if not told_at:
            lift_limits()
        now = time.monotonic()
        if now - told_at >= PROGRESS_INTERVAL_S or done_bytes == total_bytes:
            told_at = now
            _say("progress", done_bytes, total_bytes)

    limit_further(memory_bytes=HEADERS_MEMORY_BYTES, processor_s=HEADERS_PROCESSOR_S)
    try:
        card = CardCache(Path(cache)).card(Path(path), name, lambda: index_model(Path(path), name, report))
        _keep(card, Path(card_path))
    except LayerlineError as error:
        _say("error", error.code, error.message, error.remedy)
    except OSError as error:
        failure = unreadable(Path(error.filename or path), error)
        _say("error", failure.code, failure.message, failure.remedy)
    except MemoryError:
        message = f"The headers of model {name} take over {HEADERS_MEMORY_BYTES >> 20} MiB of memory."
        _say("error", ModelCorruptError.code, message, REMEDY)
    else:
        _say("card")


def _keep(card: ModelCard, path: Path) -> None:
    try:
        path.write_bytes(card.to_bytes())
    except OSError as error:
        message = f"The card of model {card.name} cannot be written to {path.parent}: {error.strerror}."
        remedy = "Free space there, or set TMPDIR to a folder that has some."
        raise ModelUnreadableError(message, remedy=remedy) from error


def _say(*words: str | int) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main()

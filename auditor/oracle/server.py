"""The process of the oracle: it reads a question per line and writes an answer per line.

Time and memory are bounded. Answers are decoded with checks, because they come from a file or
another process and may be broken.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

from auditor.analytic import Expectation, ExpectedTensor
from auditor.analytic.expectation import summed_expectation
from auditor.analytic.loading import Loading
from auditor.bounded.json_text import examined
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.oracle.build import build_cache, one_line
from auditor.oracle.inventory import inventory

# The bounds of `serve` for one answer. Of all classes with their default configs, the slowest takes
# 6 s after an import of 7 s, and the largest 344 MB.
MOST_SECONDS = 120
MOST_BYTES = 4 * 2**30


def serve() -> None:
    """Answer questions, each a line of JSON, until the input ends.

    A question is `[library, target, config]` for the tensors, and has a fourth part, "cache", for
    the cache of a class of transformers.

    A question that takes longer than MOST_SECONDS ends the process by SIGALRM; a class that needs
    more than MOST_BYTES gets no more memory. Windows has neither limit. Nothing uses the network.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    _limit_memory()
    set_alarm: Callable[[int], object] = getattr(signal, "alarm", lambda _seconds: None)
    with os.fdopen(os.dup(1), "w", encoding="ascii") as answers:
        os.dup2(2, 1)  # a library may print to stdout, which is for answers
        for line in sys.stdin:
            set_alarm(MOST_SECONDS)
            answers.write(json.dumps(_answer(*json.loads(line))) + "\n")
            answers.flush()
            set_alarm(0)


def _limit_memory() -> None:
    try:
        import resource  # noqa: PLC0415 - only this process has limits
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MOST_BYTES if hard == resource.RLIM_INFINITY else min(MOST_BYTES, hard)
    with suppress(ValueError, OSError):  # a system that has the limit may refuse to set it
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _answer(
    library: str, target: str, config: Mapping[str, Any], wanted: str = "tensors"
) -> dict[str, Any]:
    """Return what is wanted, else the `fault` of the config, else the `reason` of a failure."""
    try:
        if wanted == "cache":
            return {"cache": to_builtins(build_cache(config, target))}
        built = inventory(library, target, config)
    except CheckpointError as error:
        return {"fault": str(error)}
    except SourceError as error:
        return {"reason": error.reason, "detail": str(error)}
    except MemoryError:
        detail = f"{library} takes more than {MOST_BYTES >> 30} GiB to build {target}"
        return {"reason": Reason.TOO_LARGE, "detail": detail}
    except Exception as error:  # noqa: BLE001 - the library, or how we use it; the audit goes on
        detail = f"{target}: {type(error).__name__}: {one_line(error)}"
        return {"reason": Reason.UNKNOWN_ARCHITECTURE, "detail": detail}
    return to_json(built)


# --- an answer as JSON ----------------------------------------------------------------------------


class _Answer(Struct, frozen=True):
    model_type: str
    prefix: str
    tensors: tuple[ExpectedTensor, ...]
    loading: Loading


def to_json(built: Expectation) -> dict[str, Any]:
    """Encode an expectation; `from_json` decodes it."""
    answer = _Answer(built.model_type, built.prefix, built.tensors, built.loading)
    document: dict[str, Any] = to_builtins(answer, enc_hook=dict)
    return document


def from_json(answer: object, target: str, library: str) -> Expectation | None:
    """Return the expectation in an answer; None if the answer has none or is broken."""
    try:
        decoded = convert(answer, examined(_Answer))
        if answer["loading"].keys() != {*Loading.__struct_fields__}:  # type: ignore[index]
            return None
    except ValidationError:
        return None
    return summed_expectation(
        target,
        model_type=decoded.model_type,
        prefix=decoded.prefix,
        tensors=decoded.tensors,
        loading=decoded.loading,
        library=library,
    )

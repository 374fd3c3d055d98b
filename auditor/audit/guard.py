"""The guard around each model's audit: an unforeseen error becomes the model's outcome."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_tb
from typing import TypeVar

T = TypeVar("T")

_PACKAGE = Path(__file__).parent.parent

TOO_LITTLE_MEMORY = (
    "the audit needs more memory than this process may use; close other programs or raise its limit"
)

# Errors without a type or number of their own: from starting a thread, from loading a library.
_NO_THREAD = "can't start new thread"
_NOT_LOADED = ("failed to map segment", "annot allocate memory")


def outcome_of(
    work: Callable[[], T], otherwise: Callable[[str], T], *passing: type[Exception]
) -> T:
    """Return the result of `work`; if it raises, return `otherwise(description of the error)`.

    Raise MemoryError if memory ran out, and pass on errors of the `passing` types.
    """
    try:
        return work()
    except Exception as error:
        if isinstance(error, (MemoryError, *passing)):
            raise
        if is_lack_of_memory(error):
            raise MemoryError from error
        return otherwise(crash(error))


def is_lack_of_memory(error: BaseException) -> bool:
    """Return whether the error, or a cause of it, means that memory ran out."""
    return any(map(_is_memory_error, _with_causes(error)))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen_ids:
        yield cause
        seen_ids.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def _is_memory_error(error: BaseException) -> bool:
    match error:
        case MemoryError():
            return True
        case OSError(errno=errno.ENOMEM):
            return True
        case ImportError():
            return any(text in str(error) for text in _NOT_LOADED)
        case RuntimeError():
            return _NO_THREAD in str(error)
        case _:
            return False


def crash(error: BaseException) -> str:
    """Return a sentence with the error's class and the last line of this package in its traceback.

    The exception's text is left out: it may contain untrusted names, or a header with a token.
    """
    return (
        f"the audit failed with {type(error).__name__} at {_place(error)}: a bug of hf-audit, "
        f"whatever the model; please report it, with this line"
    )


def _place(error: BaseException) -> str:
    """Return this package's innermost line in a traceback, such as `reconciler/matching.py:120`."""
    place = "no line of its own"
    for frame, line in walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(_PACKAGE):
            place = f"{file.relative_to(_PACKAGE).as_posix()}:{line}"
    return place

"""The one guard around a model: an unforeseen error becomes its outcome, and the others go on."""

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

# Errors without a class or number of their own: of a thread's start, and of a library's loading.
_NO_THREAD = "can't start new thread"
_NOT_LOADED = ("failed to map segment", "annot allocate memory")


def outcome_of(
    work: Callable[[], T], otherwise: Callable[[str], T], *passing: type[Exception]
) -> T:
    """Return the result of `work`; if it has a bug, return `otherwise(description)`.

    Raise MemoryError if memory ran out, and the `passing` errors as they are.
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
    """Whether the error, or one that led to it, says that memory ran out."""
    return any(map(_says_lack_of_memory, _with_causes(error)))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def _says_lack_of_memory(error: BaseException) -> bool:
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
    """The class of the error, and the last line of this package that it passed; not its text.

    An exception's own text may hold anything: untrusted names, or a header with a token.
    """
    return (
        f"the audit failed with {type(error).__name__} at {_place(error)}: a bug of hf-audit, "
        f"whatever the model; please report it, with this line"
    )


def _place(error: BaseException) -> str:
    """`reconciler/matching.py:120`; the innermost frame of this package."""
    place = "no line of its own"
    for frame, line in walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(_PACKAGE):
            place = f"{file.relative_to(_PACKAGE).as_posix()}:{line}"
    return place

"""The one guard around a model: an unforeseen error becomes its outcome, and the others go on."""

from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from typing import TypeVar

T = TypeVar("T")

_PACKAGE = Path(__file__).parent.parent


def outcome_of(
    work: Callable[[], T], otherwise: Callable[[str], T], *passing: type[Exception]
) -> T:
    """What `work` returns; where it fails by a fault of our own, `otherwise` of what to say of it.

    Memory that has run out passes, as Ctrl-C does, and so does what is `passing`.
    """
    try:
        return work()
    except Exception as error:
        if isinstance(error, (MemoryError, *passing)):
            raise
        return otherwise(crash(error))


def crash(error: BaseException) -> str:
    """The class of the error, and the last line of this package that it passed; not its text.

    An exception's own text may hold anything: what a stranger wrote, or a header with a token.
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

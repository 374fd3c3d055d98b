"""Errors that say that memory ran out, and errors that do not."""

import errno
from functools import partial

import pytest

from auditor.audit.guard import is_lack_of_memory, outcome_of

LACKS = (
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("can't start new thread"),  # as threading raises it
    ImportError("libx.so: failed to map segment from shared object"),  # as the loader reports it
)
OTHERS = (
    OSError(errno.ENOENT, "No such file or directory"),
    RuntimeError("dictionary changed size during iteration"),
    ImportError("No module named 'x'"),
    KeyError("can't start new thread"),
)


def chained(cause: BaseException) -> Exception:
    """An error that another library raised from this one."""
    error = ImportError("numpy could not be imported")
    error.__cause__ = cause
    return error


def fail(error: BaseException) -> str:
    raise error


def test_an_error_of_too_little_memory_passes_the_guard_as_memory_error(subtests):
    for wrap in [lambda error: error, chained]:
        for lack in LACKS:
            with subtests.test(lack=lack, wrap=wrap), pytest.raises(MemoryError):
                outcome_of(partial(fail, wrap(lack)), str)


def test_another_error_is_no_lack_of_memory(subtests):
    for wrap in [lambda error: error, chained]:
        for error in OTHERS:
            with subtests.test(error=error, wrap=wrap):
                assert not is_lack_of_memory(wrap(error))


def test_a_circle_of_causes_ends():
    first, second = KeyError(1), KeyError(2)
    first.__cause__, second.__cause__ = second, first
    assert not is_lack_of_memory(first)

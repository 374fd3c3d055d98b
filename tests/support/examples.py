"""The number of examples that a law is tried over: its own, scaled by the kind of the run."""

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest
from hypothesis import settings

_T = TypeVar("_T")

USUAL = 100  # hypothesis' own number, to which the numbers of laws refer
IS_THOROUGH = settings.default.max_examples > USUAL
each_night = pytest.mark.skipif(not IS_THOROUGH, reason="make laws runs it, each night")
# Random configs of each class beside its defaults; `make oracle` sets the variable.
ORACLE_EXAMPLES = int(os.environ.get("ORACLE_EXAMPLES", "2"))


def examples(count: int) -> settings:
    """Return the settings of a law with a number of its own; at least one example."""
    return settings(max_examples=max(1, count * settings.default.max_examples // USUAL))


def one_in(step: int, values: Iterable[_T], start: int = 0) -> list[_T]:
    """Return every value in a thorough run, and one in `step` of them in any other."""
    return list(values) if IS_THOROUGH else list(values)[start % step :: step]

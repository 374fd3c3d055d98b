"""A badge: the stored tensors of those that are expected, and the verdict."""

import re

import pytest
from msgspec.structs import replace
from support.outcomes.examples import EXAMPLES
from support.outcomes.making import expected

from auditor.findings import Missing
from auditor.formats import View
from auditor.formats.as_badge import text_of
from auditor.formats.registry import FORMATS

CLEAN = EXAMPLES["bert-base-chinese"]()
LACKING = Missing(tensors=(expected("a", 2), expected("b", 2)), reason="it is not stored")


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (CLEAN, "202/202"),
        (replace(CLEAN, findings=(LACKING,)), "200/202 error"),
        (replace(CLEAN, ignored=(LACKING,)), "200/202"),
        (EXAMPLES["gated"](), "not audited"),
    ],
)
def test_a_badge_counts_the_tensors_that_are_stored_in_the_right_shape(outcome, text):
    assert text_of(outcome) == text


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_text_can_be_read_on_its_ground(name):
    [drawn] = FORMATS["badge"]([EXAMPLES[name]()], View()).values()
    grounds = re.findall(r'<rect [^>]*fill="(#\w+)"', drawn)
    inks = re.findall(r'<text [^>]*fill="(#\w+)"', drawn)
    for ink, ground in zip(inks, grounds, strict=True):
        lighter, darker = sorted(map(_luminance, (ink, ground)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def _luminance(colour):
    """The relative luminance that WCAG 2.2 defines for sRGB."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

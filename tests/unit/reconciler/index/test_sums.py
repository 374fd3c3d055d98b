"""Total sizes of indexes as sums over widths: laws, and totals of real checkpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.reconciler.index.sums import (
    WIDTHS,
    IndexSizes,
    WidthGroup,
    find_sum,
    groups_that_make_up,
)


def holding(learned: int, buffers=(), copies=()) -> IndexSizes:
    return IndexSizes(
        learned=learned,
        buffers=tuple(WidthGroup(*one) for one in buffers),
        copies=tuple(WidthGroup(*one) for one in copies),
        read=0,
        parameters=learned,
        tied=(),
        unexpected=0,
    )


GROUPS = st.lists(st.integers(1, 10**6), max_size=3)


# --- laws -------------------------------------------------------------------------------------


@given(st.data(), st.integers(0, 10**9), GROUPS, GROUPS, st.sampled_from(sorted(WIDTHS)))
def test_a_total_that_some_widths_make_is_made(data, learned, buffers, copies, dtype):
    width = WIDTHS[dtype]
    bits = data.draw(st.tuples(*(st.sampled_from((64, 32, 16, 8)) for _ in buffers)))
    counted = data.draw(st.tuples(*(st.booleans() for _ in copies)))
    total = learned * width
    total += sum(map(int.__mul__, buffers, bits))
    total += sum(count * width for count, twice in zip(copies, counted, strict=True) if twice)
    held = holding(learned, [("b", n) for n in buffers], [("c", n) for n in copies])
    found = find_sum(held, total // 8, dtype)
    if len(buffers) + len(copies) <= 5:
        assert found is not None
        assert WIDTHS[found.dtype] == width


@given(
    st.integers(0, 10**6), GROUPS, GROUPS, st.integers(0, 10**8), st.sampled_from(["BF16", None])
)
def test_a_sum_that_is_found_is_the_total_to_the_bit(learned, buffers, copies, total, dtype):
    held = holding(learned, [("b", n) for n in buffers], [("c", n) for n in copies])
    found = find_sum(held, total, dtype)
    if found is not None:
        assert sum(part.elements * part.bits for part in found.parts) == 8 * total
        listed = [*copies, *buffers]
        assert sorted(part.elements for part in found.parts) == sorted([learned, *listed])


@given(st.lists(st.integers(1, 10**6), max_size=20), st.integers(0, 10**6))
def test_the_pieces_of_a_difference_make_it_up(sizes, difference):
    found = groups_that_make_up(difference, tuple(WidthGroup("x", size) for size in sizes))
    assert not found or sum(group.elements for group in found) == difference
    assert bool(found) or difference not in sizes[:12]


# --- totals of real checkpoints ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "total", "declared", "said"),
    [
        # GPT-J: 28 masks of 2048 x 2048 in a byte each, 28 scalars in F32
        (
            holding(6_050_882_784, [("bias", 28 * 2048**2), ("masked_bias", 28)]),
            24_320_971_760,
            "F32",
            (
                "24,203,531,136 of parameters (6,050,882,784 x 4) + 117,440,512 of bias "
                "(117,440,512 x 1) + 112 of masked_bias (28 x 4)"
            ),
        ),
        # LayoutLM: the head's weight shares its storage, its bias is there twice
        (
            holding(
                114_977_792,
                [("position_ids", 512)],
                [("decoder.bias", 32_768), ("decoder.weight", 32_768 * 768)],
            ),
            230_025_216,
            "F32",
            (
                "229,955,584 of parameters (114,977,792 x 2) + 65,536 of decoder.bias (32,768 x 2) "
                "+ 4,096 of position_ids (512 x 8)"
            ),
        ),
        # Falcon-180B-chat: lm_head is stored though the config ties it
        (
            holding(178_557_088_768, copies=[("lm_head.weight", 65_024 * 14_848)]),
            359_045_130_240,
            "BF16",
            (
                "357,114,177,536 of parameters (178,557,088,768 x 2) + "
                "1,930,952,704 of lm_head.weight (965,476,352 x 2)"
            ),
        ),
        # RedPajama-INCITE: masks at an eighth of a byte, and the total is a float
        (
            holding(
                6_857_302_016,
                [("bias", 32 * 2048**2), ("inv_freq", 2048), ("masked_bias", 32)],
            ),
            13_731_385_408.0,
            "F16",
            (
                "13,714,604,032 of parameters (6,857,302,016 x 2) + 16,777,216 of bias "
                "(134,217,728 x 1/8) + 4,096 of inv_freq (2,048 x 2) + 64 of masked_bias (32 x 2)"
            ),
        ),
        (holding(46_702_792_704), 93_405_585_408, "BF16", "(46,702,792,704 x 2)"),
        (holding(46_702_792_704), 93_405_585_410, "BF16", "None"),
    ],
    ids=["gpt-j", "layoutlm", "falcon", "redpajama", "mixtral", "mixtral and two bytes"],
)
def test_the_total_size_of_a_published_index_is_the_sum_of_its_parts(held, total, declared, said):
    assert str(find_sum(held, total, declared)).endswith(said)

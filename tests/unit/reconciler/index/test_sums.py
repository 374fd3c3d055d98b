"""Total sizes of indexes as sums over widths: laws, and totals of real checkpoints."""

from hypothesis import given
from hypothesis import strategies as st

from auditor.reconciler.index.sums import (
    WIDTHS,
    IndexSizes,
    WidthGroup,
    find_sum,
)

OWN = -1
BUFFER = (OWN, 64, 32, 16, 8)


def sizes_of(learned: int, buffers=(), copies=(), **others) -> IndexSizes:
    groups = (
        WidthGroup("parameters", learned, (OWN,)),
        *(WidthGroup(*one) for one in copies),
        *(WidthGroup(*one, BUFFER) for one in buffers),
    )
    return IndexSizes(groups=groups, **others)


GROUPS = st.lists(st.integers(1, 10**6), max_size=2)


@given(
    st.data(), st.integers(0, 10**9), GROUPS, GROUPS, st.sampled_from(["F32", "BF16", "F8_E4M3"])
)
def test_a_total_of_possible_widths_is_a_sum_and_another_is_none(
    data, learned, buffers, copies, dtype
):
    sizes = sizes_of(learned, [("b", n) for n in buffers], [("c", n) for n in copies])
    bits = [data.draw(st.sampled_from(group.widths(WIDTHS[dtype]))) for group in sizes.groups]
    total = sum(group.elements * width for group, width in zip(sizes.groups, bits, strict=True))
    found = find_sum(sizes, total // 8, dtype)
    assert found is not None
    terms = [term.partition(" of ")[0].replace(",", "") for term in found.text.split(" + ")]
    assert sum(map(int, terms)) == total // 8
    if not buffers and not copies:
        assert find_sum(sizes, total / 8 + 0.5, dtype) is None


def test_what_is_packed_may_take_fewer_bytes():
    sizes = sizes_of(4, packed=100, fewer=10)
    found = find_sum(sizes, 103, "F16")
    assert found.text == "95 of what is packed (95 x 1) + 8 of parameters (4 x 2)"
    assert find_sum(sizes, 120, "F16") is None


def test_the_total_size_of_a_published_index_is_the_sum_of_its_parts(subtests):
    for sizes, total, declared, text in [
        (  # GPT-J: 28 masks of 2048 x 2048 in a byte each, 28 scalars in F32
            sizes_of(6_050_882_784, [("bias", 28 * 2048**2), ("masked_bias", 28)]),
            24_320_971_760,
            "F32",
            (
                "24,203,531,136 of parameters (6,050,882,784 x 4) + 117,440,512 of bias "
                "(117,440,512 x 1) + 112 of masked_bias (28 x 4)"
            ),
        ),
        (  # LayoutLM: the head's weight shares its storage, its bias is there twice
            sizes_of(
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
        (  # Falcon-180B-chat: lm_head is stored though the config ties it
            sizes_of(178_557_088_768, copies=[("lm_head.weight", 65_024 * 14_848)]),
            359_045_130_240,
            "BF16",
            (
                "357,114,177,536 of parameters (178,557,088,768 x 2) + "
                "1,930,952,704 of lm_head.weight (965,476,352 x 2)"
            ),
        ),
        (sizes_of(46_702_792_704), 93_405_585_410, "BF16", None),  # Mixtral, and two bytes more
    ]:
        with subtests.test(sizes=sizes):
            found = find_sum(sizes, total, declared)
            assert (found and found.text) == text

"""Which spans are read of a checkpoint: never more than is allowed, and what tells most first."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.errors import UsageError
from auditor.tensors import Span, StoredTensor
from auditor.values.plan import (
    DEFAULT,
    Interest,
    SampleBudget,
    Slice,
    parse_budget,
    plan_spans,
    valuable_slices,
)
from auditor.values.tensor_bytes import Placed, PlannedSpan

NAMES = (
    "model.embed_tokens.weight",
    "lm_head.weight",
    "model.norm.weight",
    "classifier.bias",
    *(f"model.layers.{layer}.self_attn.q_proj.weight" for layer in range(12)),
    *(f"model.layers.{layer}.input_layernorm.weight" for layer in range(12)),
    *(f"x.layers.{layer}.lora_B.weight" for layer in range(3)),
)


def place(sizes: dict[str, int], file: str, start: int, gap: int = 0) -> list[Placed]:
    """Tensors one behind the other, in rows of 16 bytes."""
    found = []
    for name, size in sizes.items():
        shape = (max(1, size // 16), min(16, size))
        tensor = StoredTensor(name, "U8", shape, size, file, Span(0, size))
        found.append(Placed(tensor, Path(file), Span(start, start + size)))
        start += size + gap
    return found


@st.composite
def checkpoints(draw) -> list[Placed]:
    found = []
    sizes = st.one_of(st.integers(0, 40), st.integers(0, 1_000_000), st.just(10**9))
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=12))
        held = {name: draw(sizes) for name in names}
        start, gap = draw(st.integers(8, 5000)), draw(st.sampled_from([0, 64]))
        found += place(held, f"{number}.safetensors", start, gap)
    return found


budgets = st.builds(SampleBudget, requests=st.integers(0, 12), bytes=st.integers(0, 2_000_000))
interests = st.builds(
    Interest,
    pairs=st.sampled_from([(), (("lm_head.weight", "model.embed_tokens.weight"),)]),
    doubted=st.sampled_from([frozenset(), frozenset({"classifier.bias"})]),
    tokens=st.none() | st.integers(1, 100_000),
)


def planned(placed, budget, interest=Interest()):  # noqa: B008 - frozen
    return plan_spans(placed, valuable_slices(placed, interest), budget)


@given(checkpoints(), budgets, interests)
def test_a_plan_is_within_its_budget_and_between_the_first_and_the_last_tensor_of_a_file(
    placed, budget, interest
):
    found = planned(placed, budget, interest)
    assert len(found) <= budget.requests
    assert sum(one.span.length for one in found) <= budget.bytes
    assert list(found) == sorted(found)
    for one, other in pairwise(found):  # merged
        assert one.path != other.path or one.span.stop < other.span.start
    for path, span in found:
        inside = [one.span for one in placed if one.path == path and one.span.length]
        assert min(one.start for one in inside) <= span.start < span.stop
        assert span.stop <= max(one.stop for one in inside)


@given(checkpoints(), budgets, interests, st.randoms(use_true_random=False))
def test_the_order_of_tensors_changes_no_plan(placed, budget, interest, random):
    before = planned(placed, budget, interest)
    random.shuffle(placed)
    assert planned(placed, budget, interest) == before


@given(checkpoints(), interests)
def test_slices_lie_within_their_tensors(placed, interest):
    spans = [(one.path, one.span) for one in placed]
    for one in valuable_slices(placed, interest):
        assert any(
            path == one.path and span.start <= one.span.start <= one.span.stop <= span.stop
            for path, span in spans
        )


@given(checkpoints())
def test_a_model_within_the_budget_is_read_completely(placed):
    size = sum(one.span.length + 64 for one in placed) + 1
    found = planned(placed, SampleBudget(requests=4, bytes=size))
    for one in placed:
        assert not one.span.length or any(
            path == one.path and span.start <= one.span.start and one.span.stop <= span.stop
            for path, span in found
        )


LARGE = place(
    {
        "lm_head.weight": 64_000_000,
        "model.embed_tokens.weight": 64_000_000,
        **{
            f"model.layers.{layer}.{part}.weight": size
            for layer in range(20)
            for part, size in (("input_layernorm", 8192), ("mlp.up_proj", 30_000_000))
        },
        "model.norm.weight": 8192,
    },
    "model.safetensors",
    1000,
)


def touched(found: tuple[PlannedSpan, ...], placed=LARGE) -> set[str]:
    return {
        one.tensor.name
        for one in placed
        for path, span in found
        if path == one.path and span.start < one.span.stop and one.span.start < span.stop
    }


def test_of_a_large_model_norms_head_and_embedding_are_read_and_layers_of_all_depths():
    seen = touched(planned(LARGE, DEFAULT))
    assert {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"} <= seen
    for layer in (0, 10, 19):
        assert f"model.layers.{layer}.input_layernorm.weight" in seen
        assert f"model.layers.{layer}.mlp.up_proj.weight" in seen


def test_both_of_a_tied_pair_are_read_at_the_same_place(subtests):
    for requests in [2, 4, 8]:
        with subtests.test(requests=requests):
            pair = ("lm_head.weight", "model.embed_tokens.weight")
            found = planned(
                LARGE, SampleBudget(requests=requests, bytes=600_000), Interest(pairs=(pair,))
            )
            offsets = [
                {
                    at
                    for at in range(0, 64_000_000, 4096)
                    if any(one.span.start <= start + at < one.span.stop for one in found)
                }
                for start in (LARGE[0].span.start, LARGE[1].span.start)
            ]
            assert offsets[0] & offsets[1]


def test_the_last_rows_that_tokens_have_are_read_and_not_the_padding_behind_them():
    found = planned(LARGE, SampleBudget(requests=4, bytes=100_000), Interest(tokens=3_000_000))
    start = LARGE[1].span.start
    rows = {(span.start - start) // 16 for _, span in found}
    assert any(2_990_000 < row < 3_000_000 for row in rows)


def test_a_window_with_several_slices_is_chosen_before_one_with_one():
    def slices(*starts: int) -> list[Slice]:
        return [Slice(Path("a"), Span(one, one + 10), f"k{one}", 1.0) for one in starts]

    placed = place({"x": 10_000}, "a", 0)
    found = plan_spans(placed, slices(0, 500, 520, 9000), SampleBudget(requests=1, bytes=100))
    assert found == (PlannedSpan(Path("a"), Span(500, 600)),)


BUDGETS = {
    "16": (16, 600_000),
    "2MB": (8, 2_000_000),
    "16,2MB": (16, 2_000_000),
    "300 kB, 4": (4, 300_000),
    "1MiB": (8, 1_048_576),
    "0": (0, 600_000),
}


def test_a_budget_is_requests_or_bytes_or_both():
    for text, (requests, size) in BUDGETS.items():
        assert parse_budget(text) == SampleBudget(requests=requests, bytes=size)
    for text in ("", "x", "-1", "2TB", "8;2MB", "1.5MB", "9" * 30):
        with pytest.raises(UsageError, match="--values-budget"):
            parse_budget(text)

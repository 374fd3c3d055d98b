"""Conversions on shapes, against the same on torch's meta device by the library itself."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from auditor.analytic.conversions import (
    KNOWN,
    Conversion,
    ConversionError,
    UnknownOperationError,
    converted_tensors,
)
from auditor.analytic.loading import Operation, Rule

STACK, ABOVE = Operation("MergeModulelist"), Operation("Concatenate", axes=(1,))
FUSE = Rule(("experts.*.gate", "experts.*.up"), ("experts.gate_up",), operations=(STACK, ABOVE))
CUT = Rule(("qkv",), ("q", "k", "v"), operations=(Operation("Chunk"),))
FIT = Rule(("qkv",), ("q", "k", "v"), operations=(Operation("Split"),))
TURN = Rule(("w",), ("w",), operations=(Operation("Transpose", axes=(0, 1)),))
LOOK = Rule(("w",), ("w",), operations=(Operation("Transpose", axes=(0, 1), number=1),))
ROTATE = Rule(("q",), ("q",), operations=(Operation("PermuteForRope", number=2),))
EXPERTS = ("w", "scale", "amax", "denominator")
WHOLE = Rule(EXPERTS, ("w",), operations=(Operation("Inkling2LoopDequantizeExperts"),))
QUERIES = Rule(("a", "b"), ("q",), operations=(Operation("Inkling2LoopMergeMessageQueries"),))
ROWS = Rule(("w",), ("w",), operations=(Operation("Inkling2UnpadVocab", number=6),))
LAST = Rule(("a.*.w",), ("a.w",), operations=(Operation("Concatenate", axes=(-1,)),))
MODEL = {"x.q": (4, 3), "x.k": (2, 3), "x.v": (2, 3), "x.w": (3, 5)}


def of(rule: Rule, **collected: list[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """What becomes of shapes that were collected for each of the rule's sources."""
    shapes = dict(zip(rule.sources, collected.values(), strict=False))
    return dict(converted_tensors(Conversion(rule, f"x.{rule.targets[0]}", MODEL), shapes))


def test_shapes_follow_what_the_operation_does(subtests):
    for rule, collected, made in [
        # 3 experts of (2, 5): gate above up, so 3 x (2 + 2) x 5
        (FUSE, {"gate": [(2, 5)] * 3, "up": [(2, 5)] * 3}, {"x.experts.gate_up": (3, 4, 5)}),
        (CUT, {"qkv": [(9, 4)]}, {"x.q": (3, 4), "x.k": (3, 4), "x.v": (3, 4)}),
        (CUT, {"qkv": [(8,)]}, {"x.q": (3,), "x.k": (3,), "x.v": (2,)}),
        (CUT, {"qkv": [(4,)]}, {"x.q": (2,), "x.k": (2,)}),  # as torch cuts: no third
        (FIT, {"qkv": [(8, 7)]}, {"x.q": (4, 7), "x.k": (2, 7), "x.v": (2, 7)}),
        (TURN, {"w": [(3, 5)]}, {"x.w": (5, 3)}),
        (LOOK, {"w": [(3, 5)]}, {"x.w": (3, 5)}),  # as the model has it already
        (LOOK, {"w": [(5, 3)]}, {"x.w": (3, 5)}),
        (ROTATE, {"q": [(8, 3)]}, {"x.q": (8, 3)}),
        (LAST, {"a": [(2, 3), (2, 4)]}, {"x.a.w": (2, 7)}),
        (WHOLE, {"w": [(2, 4, 32)]}, {"x.w": (2, 4, 32)}),
        (WHOLE, {"w": [(2, 4, 32)], "scale": [(2, 4, 1)]}, {"x.w": (2, 4, 32)}),
        # two numbers of four bits in a byte, a scale for 16 of them: 2 * 32 = 4 * 16
        (
            WHOLE,
            {"w": [(2, 4, 32)], "scale": [(2, 4, 4)], "amax": [(2,)], "denominator": [()]},
            {"x.w": (2, 4, 64)},
        ),
        (QUERIES, {"a": [(6, 5)], "b": [(6, 5)]}, {"x.q": (3, 4, 5)}),
        (ROWS, {"w": [(8, 3)]}, {"x.w": (6, 3)}),
        (ROWS, {"w": [(5, 3)]}, {"x.w": (5, 3)}),
    ]:
        with subtests.test(rule=rule, collected=collected, made=made):
            assert of(rule, **collected) == made


def test_a_failed_conversion_names_the_shapes(subtests):
    for rule, collected, why in [
        (FUSE, {"gate": [(2, 5), (3, 5)]}, r"MergeModulelist: one has the shape \(2, 5\), another"),
        (
            FUSE,
            {"gate": [(2, 5)] * 3, "up": [(2, 5)] * 2},
            r"Concatenate: .*\(3, 2, 5\), another \(2",
        ),
        (FUSE, {"gate": [(2, 5)] * 3}, r"Concatenate: has no stored source"),  # up is not stored
        (FIT, {"qkv": [(9, 7)]}, r"Split: \(9, 7\) cannot be cut into 4 \+ 2 \+ 2 = 8 at axis 0"),
        (TURN, {"w": [(3,)]}, r"Transpose: \(3,\) has no axis 1"),
        (ROTATE, {"q": [(6, 3)]}, r"PermuteForRope: 6 rows are not pairs of 2 heads"),
        (CUT, {"qkv": [()]}, r"Chunk: \(\) has no axis 0"),
        (QUERIES, {"a": [(6, 5)]}, r"MessageQueries: merges the shapes \[\(6, 5\)\], expected two"),
        (QUERIES, {"a": [(5, 5)], "b": [(5, 5)]}, r"\(5, 5\), expected an even length of axis 0"),
    ]:
        with (
            subtests.test(rule=rule, collected=collected, why=why),
            pytest.raises(ConversionError, match=why),
        ):
            of(rule, **collected)


def test_an_unknown_operation_is_refused():
    rule = Rule(("a",), ("b",), operations=(Operation("Fold"),))
    with pytest.raises(UnknownOperationError, match="Fold"):
        of(rule, a=[(2,)])


# --- against the library ----------------------------------------------------------------------

SHAPES = st.lists(st.integers(0, 6), max_size=3).map(tuple)
LISTS = st.lists(SHAPES, min_size=1, max_size=3) | SHAPES.flatmap(
    lambda shape: st.lists(st.just(shape), min_size=1, max_size=4)
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Rules of every operation, alone and in the chains that the library has."""
    axis = st.integers(-1, 2)
    one = {
        "Chunk": Operation("Chunk", (draw(axis),), draw(st.none() | st.integers(1, 3))),
        "Split": Operation("Split", (draw(axis),)),
        "Concatenate": Operation("Concatenate", (draw(axis),)),
        "Interleave": Operation("Interleave", (draw(st.integers(0, 2)),)),
        "MergeModulelist": Operation("MergeModulelist", (draw(axis),)),
        "Transpose": Operation(
            "Transpose", (draw(axis), draw(axis)), draw(st.sampled_from([None, 1]))
        ),
        "PermuteForRope": Operation(
            "PermuteForRope", (0,), draw(st.integers(1, 3)), draw(st.sampled_from([None, ("a",)]))
        ),
        "ErnieFuseAndSplitTextVisionExperts": Operation(
            "ErnieFuseAndSplitTextVisionExperts", (0, 1)
        ),
        "Inkling2LoopMergeMessageQueries": Operation("Inkling2LoopMergeMessageQueries"),
        "Inkling2UnpadVocab": Operation("Inkling2UnpadVocab", number=draw(st.integers(0, 3))),
    }
    names = draw(
        st.sampled_from(
            [(name,) for name in sorted(one)]
            + [("MergeModulelist", "Concatenate"), ("Interleave", "Chunk")]
            + [("Chunk", "PermuteForRope"), ("PermuteForRope", "Concatenate")]
        )
    )
    many = names[0] == "ErnieFuseAndSplitTextVisionExperts"
    to = draw(st.integers(1, 3))
    sources = ("a", "b", "c")[: 1 if to > 1 and not many else draw(st.integers(1, 2))]
    targets = ("q.*", "k", "v")[:to]
    return Rule(sources, targets, operations=tuple(one[name] for name in names))


@pytest.mark.oracle
@examples(300)
@given(rules(), st.lists(LISTS, min_size=2, max_size=2), st.lists(SHAPES, min_size=3, max_size=3))
def test_shapes_are_those_of_the_library_on_the_meta_device(rule, lists, model):
    collected = dict(zip(rule.sources, lists, strict=False))
    named = dict(zip(("x.q.*", "x.k", "x.v"), model, strict=True))
    try:
        ours: Any = dict(
            converted_tensors(Conversion(rule, f"x.{rule.targets[0]}", named), collected)
        )
    except ConversionError:
        ours = "raises"
    assert ours == _theirs(rule, collected, named)


def _theirs(rule: Rule, collected: dict[str, Any], named: dict[str, Any]) -> Any:
    import torch  # noqa: PLC0415 - seconds
    from transformers import core_model_loading as core  # noqa: PLC0415 - likewise

    class Config:
        num_attention_heads = next(
            (each.number for each in rule.operations if each.name == "PermuteForRope"), 1
        )
        parts = next((each.number for each in rule.operations if each.name == "Chunk"), None)
        unpadded_vocab_size = next(
            (each.number for each in rule.operations if each.name == "Inkling2UnpadVocab"), 0
        )

        def get_text_config(self) -> "Config":
            return self

    class Model:
        config = Config()

        def get_parameter(self, name: str) -> Any:
            return torch.empty(named[name], device="meta")

    converter = core.WeightConverter(
        list(rule.sources),
        list(rule.targets),
        [_operation(core, each) for each in rule.operations],
    )
    for source, shapes in collected.items():
        for number, shape in enumerate(shapes):
            empty = torch.empty(shape, device="meta")
            converter.add_tensor("x", f"{source}{number}", source, lambda empty=empty: empty)
    try:
        made = converter.convert(f"x.{rule.targets[0]}", model=Model(), config=Model.config)
    except Exception:  # noqa: BLE001 - whatever torch raises, loading reports it
        return "raises"
    lone = {name: each[0] if isinstance(each, list) else each for name, each in made.items()}
    return {name: tuple(each.shape) for name, each in lone.items()}


def _operation(core: Any, operation: Operation) -> Any:
    kind = getattr(core, operation.name)
    match operation.name:
        case "Chunk":
            return kind(operation.axes[0], "parts" if operation.number else None)
        case "Transpose":
            return kind(*operation.axes, check_dims=bool(operation.number))
        case "PermuteForRope":
            return kind(permute_layer_names=list(operation.only) if operation.only else None)
        case "ErnieFuseAndSplitTextVisionExperts":
            return kind(*operation.axes)
        case "Inkling2LoopMergeMessageQueries" | "Inkling2UnpadVocab":
            return kind()
        case _:
            return kind(operation.axes[0])


@pytest.mark.oracle
def test_every_operation_that_the_library_registers_is_known():
    from transformers import conversion_mapping as theirs  # noqa: PLC0415 - as above

    registry = theirs._build_checkpoint_conversion_mapping()  # noqa: SLF001 - all of them
    used = {
        type(operation).__name__
        for rules in registry.values()
        for rule in rules
        for operation in getattr(rule, "operations", ())
    }
    assert used == KNOWN

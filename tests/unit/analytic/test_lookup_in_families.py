"""One look for all classes of a family finds what a look into each of them finds."""

from hypothesis import example, given
from hypothesis import strategies as st
from support.checkpoints import BERT_CLASSES, config_bytes, spoilt

from auditor.analytic import catalogue, read_config
from auditor.analytic.blocks import Extra, LayerNorm, Param, Repeat, Submodel, Tied, module, stack
from auditor.analytic.dims import counted_dim, dim
from auditor.analytic.lookup import NameLookup, Union
from auditor.reconciler import unexpected
from auditor.reconciler.matching import Candidate, Places

WIDE, NARROW = LayerNorm(dim(4)), module(scale=Param((dim(2),)))
TREES = (
    module(
        layer=stack(
            counted_dim(3), lambda number: number == 1, lambda wide: WIDE if wide else NARROW
        ),
        inner=Submodel(module(head=module(weight=Tied("table.weight")), w=Param((dim(5),)))),
    ),
    module(layer=Repeat(counted_dim(2), module(w=Param((dim(2),)))), draft=Extra(WIDE)),
)
LISTED = {"layer.7.w": None, "x": None}
CLASSES = (*map(NameLookup, TREES), LISTED)
PARTS = ("layer", "0", "1", "01", "2", "3", "7", "inner", "head", "draft", "w", "weight", "x", "")


@example(["layer", "0", "scale"])
@example(["layer", "2", "w"])
@example(["draft", "weight"])
@example(["inner", "head", "weight"])
@given(st.lists(st.sampled_from((*PARTS, "scale")), max_size=5))
def test_a_name_is_in_it_if_and_only_if_a_class_has_it(parts):
    name = ".".join(parts)
    assert (name in Union(CLASSES)) == any(name in names for names in CLASSES)


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map(".".join))
def test_a_second_look_gives_what_the_first_gave(name):
    union = Union(CLASSES)
    first = name in union
    assert [name in union for _ in range(3)] == [first] * 3


FAMILIES = {
    "bert": {},  # a prefix, ties, older names of all classes
    "vit": {"image_size": 4, "patch_size": 2},  # renames of its own
    "deepseek_v3": {"num_hidden_layers": 2, "first_k_dense_replace": 1, "n_routed_experts": 2},
    "clip": {},  # models inside a model
}
SPOILT = (
    lambda name: name,
    lambda name: f"model.{name}",
    lambda name: name.partition(".")[2],
    lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma"),
    lambda name: name.replace("layers.", "encoder.layer.").replace("q_proj", "attention.query"),
    lambda name: name.replace(".0.", ".9."),
    lambda name: f"{name}.x",
    lambda name: name.replace(".", "_", 1),
)


def test_the_filter_passes_every_name_that_some_class_has(subtests):
    for model_type, values in FAMILIES.items():
        with subtests.test(model_type=model_type):
            config = read_config("config.json", config_bytes(model_type=model_type, **values))
            every = [catalogue.sibling(config, name) for name in catalogue.siblings(model_type)]
            family = [Places(one.names, one.prefix, one.loading) for one in every]
            names = {
                f"{one.prefix}.{tensor.name}" if prefixed else tensor.name
                for one in every
                for tensor in catalogue.expect(config, one.target).tensors
                for prefixed in (False, True)
            }
            seen = sorted({spoil(name) for name in names for spoil in SPOILT})
            known = {
                name
                for of in family
                for name, place in zip(seen, of.of(seen), strict=True)
                if place.expected
            }
            may_be_known = unexpected.FamilyNames(every).may_know(seen)
            let_through = {name for name, one in zip(seen, may_be_known, strict=True) if one}
            assert len(known) > len(names) / 2
            assert known <= let_through
            assert len(let_through) < len(seen)


@given(spoilt())
def test_unexpected_names_are_identified_as_by_each_class_alone(case):
    config = read_config("config.json", config_bytes(**case.changes))
    loading = catalogue.expect(config, case.target).loading
    every = tuple(catalogue.sibling(config, name) for name in BERT_CLASSES)
    candidates = [Candidate(tensor, tensor.name) for tensor in case.tensors]
    found = unexpected.identify(candidates, loading, lambda: every)
    told = loading.unknown([tensor.name for tensor in case.tensors])
    for tensor, item, unknown in zip(case.tensors, found, told, strict=True):
        if not unknown.buffer:
            places = (
                Places(one.names, one.prefix, one.loading).of((tensor.name,)) for one in every
            )
            known = [
                (one.target, place.expected)
                for one, (place,) in zip(every, places, strict=True)
                if place.expected
            ]
            alone = unexpected._used(tensor, known)  # noqa: SLF001 - the slow way
            assert item._replace(silent=False) == alone

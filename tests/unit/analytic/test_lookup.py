"""Looking a name up gives what writing the whole tree out gives."""

from hypothesis import example, given
from hypothesis import strategies as st
from support.checkpoints import BERT_CLASSES, config_bytes, expect

from auditor.analytic import catalogue, read_config
from auditor.analytic.blocks import Extra, LayerNorm, Param, Repeat, Submodel, Tied, module, stack
from auditor.analytic.dims import counted_dim, dim
from auditor.analytic.listing import inventory
from auditor.analytic.lookup import NameLookup

WIDE, NARROW = LayerNorm(dim(4)), LayerNorm(dim(2))
TREE = module(
    layer=stack(counted_dim(3), lambda number: number == 1, lambda wide: WIDE if wide else NARROW),
    inner=Submodel(
        module(head=module(weight=Tied("table.weight")), table=module(weight=Param((dim(5), 3))))
    ),
    h=Repeat(counted_dim(2), module(w=Param((dim(2),)))),
    draft=Extra(module(w=Param((dim(7),)))),
    **{"deep.61.own": module(w=Param((dim(6),)), a=module(b=module(w=Param((dim(8),)))))},
)


def test_every_name_of_a_class_is_found_as_it_is_listed(subtests):
    for tied in [True, False]:
        for target in BERT_CLASSES:
            with subtests.test(target=target, tied=tied):
                config = read_config("config.json", config_bytes(tie_word_embeddings=tied))
                names = catalogue.sibling(config, target).names
                listed = expect(target, tie_word_embeddings=tied).tensors
                assert tuple(names.get(tensor.name) for tensor in listed) == listed


def test_stacks_submodels_and_extras_are_found_as_they_are_listed() -> None:
    listed = inventory(TREE, {}).tensors
    assert tuple(NameLookup(TREE).get(tensor.name) for tensor in listed) == listed
    foreign = [f"{part}{tensor.name}" for tensor in listed for part in ("other.", "h.", "deep.")]
    names = [*(tensor.name for tensor in listed), *foreign]
    assert tuple(NameLookup(TREE).tensors(names).values()) == listed


@example(["h", "0", "w", ""])
@example(["h", "0"])
@given(
    st.lists(st.sampled_from(["layer", "0", "1", "01", "3", "h", "w", "weight", ""]), max_size=5)
)
def test_nothing_else_is_found(parts: list[str]) -> None:
    name = ".".join(parts)
    listed = {tensor.name for tensor in inventory(TREE, {}).tensors}
    assert (name in NameLookup(TREE)) == (name in listed)

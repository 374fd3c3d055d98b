import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.block_trees import D, E, N, blocks, modules, size, stacked
from support.depths import depths, listed

from auditor.analytic import ExpectedTensor, Role
from auditor.analytic.blocks import (
    BatchNorm,
    Buffer,
    Conv,
    Conv1D,
    ConvTranspose,
    Embedding,
    Experts,
    Extra,
    FrozenBatchNorm,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    Param,
    Repeat,
    RMSNorm,
    Submodel,
    Tied,
    list_indices,
    module,
    sequential,
    stack,
)
from auditor.analytic.listing import inventory
from auditor.errors import CheckpointError
from auditor.tensors import Depth


@given(modules(blocks()))
def test_every_tensor_lies_in_a_module_unless_nothing_there_is_required(tree):
    listed = inventory(tree, {})
    required = (tensor.name for tensor in listed.tensors if not tensor.role.optional)
    parents = {name.rpartition(".")[0] for name in required}
    assert parents <= listed.modules.keys()


@given(modules(blocks()), depths())
def test_the_modules_to_a_depth_are_those_of_all_that_it_lists(tree, depth):
    every = inventory(tree, {}).modules
    cut = inventory(tree, {}).modules_to(depth)
    assert list(cut.items()) == [(key, of) for key, of in every.items() if listed(depth, key)]


@given(modules(blocks()), st.data())
def test_a_listed_name_has_its_shape_and_any_other_name_has_no_shape(tree, data):
    listed, none = inventory(tree, {}), (-1,)
    names = [tensor.name for tensor in listed.tensors]
    part = st.sampled_from([*{part for name in names for part in name.split(".")}, "0", "01", "7"])
    others = data.draw(st.lists(st.lists(part, max_size=5).map(".".join)))
    asked = data.draw(st.permutations([*names, *others]))
    assert list(listed.shapes_of(asked, none)) == [listed.shapes.get(one, none) for one in asked]


def test_the_modules_of_many_experts_are_left_out_below_the_depth():
    expert = module(up=Linear(D, D), down=Linear(D, D))
    tree = module(layers=Repeat(size("N", 3), module(experts=Repeat(size("E", 50), expert))))
    assert len(inventory(tree, {}).modules) == 1 + 1 + 3 + 3 + 3 * 50 * 3
    numbered = {f"layers.{number}" for number in range(3)}
    assert set(inventory(tree, {}).modules_to(Depth(2))) == {"", "layers", *numbered}
    experts = {f"{layer}.experts" for layer in numbered}
    every = {f"{each}.{number}" for each in experts for number in range(50)}
    without = inventory(tree, {}).modules_to(Depth(9, layers=2))
    assert set(without) == {"", "layers", *numbered, *experts, *every}
    assert set(inventory(tree, {}).modules_to(Depth(9, layers=0))) == {"", "layers", *numbered}


def test_a_module_comes_before_its_children():
    tree = module(a=module(b=Linear(D, D)), layer=Repeat(E, module(c=Linear(D, 1))))
    assert list(inventory(tree, {}).modules) == [
        "",
        "a",
        "a.b",
        "layer",
        "layer.0",
        "layer.0.c",
        "layer.1",
        "layer.1.c",
    ]


def test_each_layer_lists_the_names_and_shapes_that_torch_gives_it():
    tree = module(
        patches=Conv(3, D, kernel=(2, 5)),
        grouped=Conv(D, 2 * D, kernel=(7,), groups=D, bias=False),
        upscale=ConvTranspose(D, 4, kernel=(2, 3)),
        frozen=FrozenBatchNorm(D),
        c_attn=Conv1D(D, 3 * D),
        norm=RMSNorm(D),
        plain=LayerNorm(D, bias=False),
        head=sequential(Linear(D, 1, bias=False), None, BatchNorm(1)),
    )
    assert [
        (name, shape, role.value) for name, shape, _, role, _ in inventory(tree, {}).tensors
    ] == [
        ("patches.weight", (6, 3, 2, 5), "parameter"),
        ("patches.bias", (6,), "parameter"),
        ("grouped.weight", (12, 1, 7), "parameter"),
        ("upscale.weight", (6, 4, 2, 3), "parameter"),
        ("upscale.bias", (4,), "parameter"),
        ("frozen.weight", (6,), "buffer"),
        ("frozen.bias", (6,), "buffer"),
        ("frozen.running_mean", (6,), "buffer"),
        ("frozen.running_var", (6,), "buffer"),
        ("c_attn.weight", (6, 18), "parameter"),
        ("c_attn.bias", (18,), "parameter"),
        ("norm.weight", (6,), "parameter"),
        ("plain.weight", (6,), "parameter"),
        ("head.0.weight", (1, 6), "parameter"),
        ("head.2.weight", (1,), "parameter"),
        ("head.2.bias", (1,), "parameter"),
        ("head.2.running_mean", (1,), "buffer"),
        ("head.2.running_var", (1,), "buffer"),
        ("head.2.num_batches_tracked", (), "buffer"),
    ]


def test_layers_of_several_kinds_are_numbered_in_their_order_and_counted_by_kind():
    built: list[bool] = []

    def layer(sparse: bool) -> Module:  # noqa: FBT001 - a kind of layer
        built.append(sparse)
        return module(mlp=Linear(D, 4 * D, bias=False) if not sparse else Repeat(E, RMSNorm(D)))

    listed = inventory(module(layers=stack(size("N", 61), lambda i: i >= 3, layer)), {})
    assert built == [False, True]
    assert str(listed.total) == "3*4*D^2 + 58*E*D".replace("3*4", "12")
    assert [t.name for t in listed.tensors[2:5]] == [
        "layers.2.mlp.weight",
        "layers.3.mlp.0.weight",
        "layers.3.mlp.1.weight",
    ]
    assert len(listed.tensors) == 3 + 58 * 2


def test_a_kind_that_adds_something_to_the_plainest_counts_as_that(subtests):
    for layers, formula in [
        (("plain", "plain", "plain"), "N*(D^2 + D)"),
        (("more", "plain", "plain"), "N*(D^2 + D) + E*D"),
        (("plain", "same", "plain"), "N*(D^2 + D)"),
        (("wide", "plain", "plain"), "N*(D^2 + D) + 3*D^2"),
        (("plain", "wide", "plain"), "N*(D^2 + D) + 3*D^2"),
    ]:
        with subtests.test(layers=layers, formula=formula):
            kinds = {
                "plain": Linear(D, D),
                "same": module(other=Param((D, D)), norm=RMSNorm(D)),
                "more": module(dense=Linear(D, D), bias=Param((E, D))),
                "wide": module(dense=Param((2 * D, 2 * D)), norm=RMSNorm(D)),
            }
            listed = inventory(module(layer=stack(N, layers.__getitem__, kinds.__getitem__)), {})
            assert str(listed.total) == formula


def test_one_token_uses_as_many_experts_as_it_is_routed_to():
    k = size("k", 1)
    expert = Linear(D, D, bias=False)
    fused = Param((N, 2 * D, D))
    tree = module(
        gate=Linear(D, N, bias=False),
        experts=Experts(Repeat(N, expert), count=N, active=k),
        fused=Experts(fused, count=N, active=k),
    )
    listed = inventory(tree, {})
    assert (str(listed.total), str(listed.active)) == ("N*(3*D^2 + D)", "N*D + 3*k*D^2")
    assert (listed.total.value, listed.active.value) == (3 * (3 * 36 + 6), 3 * 6 + 3 * 36)
    assert listed.tensors[1].name == "experts.0.weight"
    assert inventory(module(gate=Linear(D, N)), {}).active is None


def test_optional_tensors_have_no_parameters_and_no_module():
    tree = module(
        rotary=module(inv_freq=Legacy((3,))),
        drafting=Extra(module(dense=Linear(D, 1, bias=False), mask=Buffer((2,)))),
        norm=RMSNorm(D),
    )
    listed = inventory(tree, {})
    assert [(tensor.name, tensor.role) for tensor in listed.tensors] == [
        ("rotary.inv_freq", Role.LEGACY),
        ("drafting.dense.weight", Role.EXTRA),
        ("drafting.mask", Role.LEGACY),
        ("norm.weight", Role.PARAMETER),
    ]
    assert list(listed.modules) == ["", "norm"]
    assert listed.total.value == 6


def test_a_model_inside_another_is_tied_within_itself():
    inner = module(words=Embedding(7, D), head=module(weight=Tied("words.weight")))
    listed = inventory(module(text=Submodel(inner), words=Embedding(3, D)), {})
    assert listed.tensors[1] == ExpectedTensor(
        "text.head.weight", (7, 6), 42, Role.TIED, "text.words.weight"
    )


def test_a_tied_tensor_has_the_shape_it_shares_and_no_parameters():
    tree = module(head=module(weight=Tied("words.weight")), words=Embedding(7, D))
    listed = inventory(tree, {})
    assert listed.tensors == (
        ExpectedTensor("head.weight", (7, 6), 42, Role.TIED, "words.weight"),
        ExpectedTensor("words.weight", (7, 6), 42),
    )
    assert listed.total.value == 42
    assert listed.modules["head"] == (0, "0")


def test_formulas_are_written_with_the_replacements():
    F = size("F", 24)
    (symbol,) = F.symbols
    listed = inventory(module(dense=Linear(D, F)), {symbol: 4 * D})
    assert str(listed.total) == "4*D^2 + 4*D"
    assert listed.modules["dense"] == (168, "4*D^2 + 4*D")


def test_a_listing_that_would_never_end_is_refused_before_it_begins(subtests):
    for tree, message in [
        (
            module(layer=Repeat(size("N", 10**9, "num_hidden_layers"), Linear(D, D))),
            r"^num_hidden_layers 1000000000 would imply 2,000,000,000 tensors, expected",
        ),
        (
            module(layer=Repeat(size("N", 2000), module(e=Repeat(size("E", 600), LayerNorm(D))))),
            r"^key 2000 would imply 2,400,000 tensors, expected",
        ),
        (
            module(
                layer=stacked(
                    size("N", 2000), [module(e=Repeat(size("E", 600), LayerNorm(D))), module()]
                )
            ),
            r"^key 2000 would imply 1,201,000 tensors, expected",
        ),
        (
            module(layer=Repeat(size("N", 2), module(e=Repeat(size("E", 50_000), LayerNorm(D))))),
            r"^key 2 would imply 200,000 tensors, expected",
        ),
        (
            sequential(*[module(e=Repeat(size("E", 50_000), LayerNorm(D)))] * 2),
            r"^the config would imply 200,000 tensors, expected",
        ),
    ]:
        with (
            subtests.test(tree=tree, message=message),
            pytest.raises(CheckpointError, match=message),
        ):
            inventory(tree, {})


@given(st.integers(0, 1000))
def test_list_indices_start_at_zero(count):
    assert list(list_indices(size("N", count))) == list(range(count))
    with pytest.raises(CheckpointError, match=r"^key \d+ would imply [\d,]+ tensors, expected"):
        list_indices(size("N", 100_001 + count))

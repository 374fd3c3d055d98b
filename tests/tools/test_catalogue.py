"""The learner, on a class that is a function: the form that it ships equals the function."""

import random
from types import SimpleNamespace

import pytest
from catalogue.fitting import Observation, fit_value
from catalogue.learner import Learner, UnfitError
from catalogue.probe import Probe, Sample, keys_read

from auditor.analytic.generated.tree import form_tree, memory_tree
from auditor.analytic.listing import inventory

LOADING = '{"renames": [], "legacy": [], "not_renamed": []}'
DEFAULTS = {
    "hidden_size": 48,
    "num_heads": 4,
    "num_hidden_layers": 8,
    "first_dense": 1,
    "num_experts": 2,
    "gate_bias": True,
    "tie_word_embeddings": False,
    "kind": "plain",
    "dropout": 0.1,
    "vocab_size": 100,
    "widths": [8, 8, 8],
    "groups": [4, 4, 4],
}


def resolved(written):
    values = DEFAULTS | written
    layers = range(values["num_hidden_layers"])
    types = ["dense" if n < values["first_dense"] else "sparse" for n in layers]
    return {"layer_types": types} | values


def tensors(values):
    """The function: names, shapes and ties; ValueError for a config that it refuses."""
    D, H = values["hidden_size"], values["num_heads"]
    if D % H or len(values["layer_types"]) != values["num_hidden_layers"]:
        raise ValueError
    plain = ("parameter", None)
    found = {"embed.weight": ((values["vocab_size"], D), plain)}
    for n, kind in enumerate(values["layer_types"]):
        found[f"layers.{n}.q.weight"] = ((D, D // H * H), plain)
        found[f"layers.{n}.norm.weight"] = ((D // H,), plain)
        for expert in range(values["num_experts"] if kind == "sparse" else 0):
            found[f"layers.{n}.experts.{expert}.up.weight"] = ((4 * D, D), plain)
        if kind == "dense":
            found[f"layers.{n}.up.weight"] = ((3 * D + 8, D), plain)
        if kind == "sparse" and values["gate_bias"]:
            found[f"layers.{n}.gate.bias"] = ((values["num_experts"],), plain)
    if values["kind"] == "gated":
        found["gate.weight"] = ((D,), plain)
    tied = ("tied", "embed.weight") if values["tie_word_embeddings"] else plain
    found["head.weight"] = ((values["vocab_size"], D), tied)
    return found


def by_name(form, config):
    return {one.name: one for one in inventory(form_tree(form, config), {}).tensors}


class Toy:
    """The part of `Probe` that the learner uses."""

    def __init__(self, function):
        self.function = function
        self.target, self.model_type, self.config_class = "ToyModel", "toy", None
        self.parts, self.known, self.builds, self.error = {}, {}, 0, ""
        self.needed, self.nullable, self.menu, self.joint, self.hints = {}, set(), {}, [], []
        self.built = SimpleNamespace(prefix="model")

    def default(self):
        return self({})

    def words(self, key):
        return ["gated"] if key == "kind" else []

    def full(self, overrides):
        return {"model_type": "toy", **overrides}

    def __call__(self, overrides):
        key = str(sorted(overrides.items()))
        if key not in self.known:
            self.builds += 1
            try:
                leaves = resolved(overrides)
                made = self.function(leaves)
                self.known[key] = Sample(
                    self.full(overrides), frozenset(overrides), leaves, made, LOADING
                )
            except (ValueError, ZeroDivisionError) as error:
                self.known[key], self.error = None, str(error)
        return self.known[key]


def test_a_learned_form_equals_the_class_on_configs_that_learning_did_not_draw():
    form = Learner(Toy(tensors), 60).learn()
    rng = random.Random(5)  # noqa: S311 - the same configs each time
    for _ in range(60):
        written = {
            "hidden_size": rng.choice((16, 80, 144)),
            "num_heads": rng.choice((1, 2, 8)),
            "num_hidden_layers": rng.choice((1, 5, 12)),
            "first_dense": rng.choice((0, 2)),
            "num_experts": rng.choice((1, 3, 9)),
            "gate_bias": rng.choice((True, False)),
            "tie_word_embeddings": rng.choice((True, False)),
            "kind": rng.choice(("plain", "gated")),
        }
        made = by_name(form, {"model_type": "toy", **written})
        observed = {name: (one.shape, (one.role.value, one.tied_to)) for name, one in made.items()}
        assert observed == tensors(resolved(written))


def test_a_class_that_follows_no_rule_is_learned_for_its_default_alone():
    def hashed(values):
        width = hash((values["hidden_size"], values["num_hidden_layers"])) % 997 + 1
        return {f"blocks.{n}.weight": ((width + n * n * n,), ("parameter", None)) for n in range(3)}

    form = Learner(Toy(hashed), 60).learn()
    made = by_name(form, {"model_type": "toy", "dropout": 0.3})
    assert {name: one.shape for name, one in made.items()} == {
        name: shape for name, (shape, _) in hashed(resolved({})).items()
    }
    assert form.guards.keys() >= {"hidden_size", "num_hidden_layers"}


def test_a_network_without_a_rule_is_a_table_by_place_where_its_keys_are_guarded():
    def stages(values):
        plain, D = ("parameter", None), values["hidden_size"]
        widths = [8, 24, 40, 112] if values["kind"] == "plain" else [9, 9, 9]
        made = {f"stages.{n}.weight": ((w, n + 3), plain) for n, w in enumerate(widths)}
        return made | {"head.weight": ((D, widths[-1]), plain)}

    form = Learner(Toy(stages), 60).learn()
    made = by_name(form, {"model_type": "toy", "hidden_size": 640})
    assert {name: one.shape for name, one in made.items()} == {
        name: shape for name, (shape, _) in stages(resolved({"hidden_size": 640})).items()
    }


def test_each_item_of_a_list_is_moved_before_a_form_of_a_second_class_is_held():
    def first(values):
        widths, plain = values["widths"], ("parameter", None)
        if len(widths) != len(values["groups"]):
            raise ValueError
        return {f"stages.{n}.weight": ((4 * width, width), plain) for n, width in enumerate(widths)}

    def second(values):
        return first(values) | {"head.weight": ((values["widths"][-1],), ("parameter", None))}

    known = Learner(Toy(first), 60)
    known.learn()
    form = Learner(Toy(second), 60, known).learn()
    for lists in ({"groups": [8, 8, 8]}, {"widths": [8, 40, 24], "groups": [2, 4, 2]}):
        made = by_name(form, {"model_type": "toy", **lists})
        assert {name: one.shape for name, one in made.items()} == {
            name: shape for name, (shape, _) in second(resolved(lists)).items()
        }


def test_two_sizes_that_are_equal_by_chance_choose_no_formula():
    seen = [
        Observation({"experts": experts, "width": width})
        for experts, width in ((5, 10), (7, 10), (5, 20), (7, 30))
    ]
    values = [56, 110, 56, 110]  # 56 where there are five experts
    assert fit_value(values, seen, ["experts", "width"]) is None


def test_a_key_without_which_a_class_is_not_built_must_be_stated():
    probe = Probe("transformers", "MinistralModel")
    assert probe({}) is None
    assert probe.default() is not None
    assert probe.needed == {"head_dim": 64}


def test_keys_that_a_class_reads_beside_its_defaults():
    read = keys_read("CTRLModel", ["ctrl"])
    assert "hidden_size" in read  # another name of n_embd
    assert "n_embd" not in read  # it has a default
    assert keys_read("FuyuModel", ["fuyu"]) is None  # it moves keys of a list to its text_config


def test_a_table_that_changes_nothing_is_no_guard():
    def built(values):
        return tensors(
            {**values, "hidden_size": values["hidden_size"] + values["sizes"].get("c", 0)}
        )

    for table, guarded in (({"a": 1}, False), ({"c": 8}, True)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(DEFAULTS, "sizes", table)
            assert ("sizes" in Learner(Toy(built), 60).learn().guards) is guarded


def test_a_list_that_does_not_act_may_have_all_items_of_the_default(monkeypatch):
    def with_attention(written, plain=resolved):
        values = plain(written)
        kinds = ["full" if n % 6 == 5 else "near" for n in range(values["num_hidden_layers"])]
        return {"attention": kinds} | values

    monkeypatch.setitem(globals(), "resolved", with_attention)
    known = Learner(Toy(tensors), 60)
    for form in (known.learn(), Learner(Toy(tensors), 60, known).learn()):
        depth = {"num_hidden_layers": 2, "attention": ["full", "near"]}
        assert (
            by_name(form, {"model_type": "toy", **depth}).keys() == tensors(resolved(depth)).keys()
        )


def test_tensors_in_memory_are_learned_where_the_loading_rules_do_not_give_them():
    def fused(values):
        memory = {
            f"memory:layers.{n}.qkv.weight": ((3 * values["hidden_size"],), ("parameter", None))
            for n in range(values["num_hidden_layers"])
        }
        return tensors(values) | memory

    config = {"model_type": "toy", "num_hidden_layers": 2, "hidden_size": 80}
    tree = memory_tree(Learner(Toy(fused), 60).learn(), config)
    shapes = {one.name: one.shape for one in inventory(tree, {}).tensors}
    assert shapes == {f"layers.{n}.qkv.weight": (240,) for n in range(2)}


def test_a_class_whose_default_cannot_be_built_is_not_learned():
    def broken(values):
        raise ValueError(values["kind"])

    with pytest.raises(UnfitError, match="does not build"):
        Learner(Toy(broken), 60).learn()

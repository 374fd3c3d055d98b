"""Experts that are stored as one tensor are the experts that the architecture names one by one."""

import json
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bert_configs import config_of
from support.builders import safetensors_bytes
from support.examples import one_in
from support.layouts.indexed import hides_what_it_cannot_show, its_total_is_told
from support.layouts.packed import faults, pieces, stored
from support.sharding import write

from auditor import Report
from auditor.analytic import Expectation, Role, catalogue
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.layouts.fused import separated
from auditor.layouts.packing import PLAIN, LogicalTensor, Unpacked

Shapes = dict[str, tuple[int, ...]]

QWEN = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "vocab_size": 7,
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "moe_intermediate_size": 5,
    "num_experts": 3,
    "num_experts_per_tok": 2,
    "dtype": "float32",
}
EXPERTS = "model.layers.0.mlp.experts"
# Of the ten types with closed forms that hold in one tensor what they store in many, one for each
# way of naming them; on the meta device nothing but their number needs to be small.
FEW = {"num_hidden_layers": 2, "num_experts_per_tok": 2, "dtype": "float32"}
MIXTURES = {
    "DeepseekV3ForCausalLM": ("deepseek_v3", {"n_routed_experts": 8, "first_k_dense_replace": 1}),
    "Lfm2MoeForCausalLM": (
        "lfm2_moe",
        {"num_experts": 3, "num_dense_layers": 1, "layer_types": ["conv", "full_attention"]},
    ),
    "MixtralForCausalLM": ("mixtral", {"num_local_experts": 3}),
    "Qwen2MoeForCausalLM": ("qwen2_moe", {"num_experts": 3}),
    "Qwen3_5MoeForCausalLM": (
        "qwen3_5_moe_text",
        {"num_experts": 3, "layer_types": ["linear_attention", "full_attention"]},
    ),
}


def written(expectation: Expectation) -> Shapes:
    learned = {Role.PARAMETER, Role.BUFFER}
    return {each.name: each.shape for each in expectation.tensors if each.role in learned}


def fused(shapes: Shapes, gate: str, up: str, down: str) -> Shapes:
    """The same checkpoint with all experts of a layer in two tensors."""
    kept, experts = {}, {}
    for name, shape in shapes.items():
        before, _, after = name.partition(".experts.")
        if after:
            experts.setdefault(f"{before}.experts", {})[after] = shape
        else:
            kept[name] = shape
    for module, parts in experts.items():
        count = len({part.partition(".")[0] for part in parts})
        (rows, columns), above = parts[f"0.{gate}.weight"], parts[f"0.{up}.weight"]
        assert above == (rows, columns)
        kept[f"{module}.gate_up_proj"] = (count, 2 * rows, columns)
        kept[f"{module}.down_proj"] = (count, *parts[f"0.{down}.weight"])
    return kept


def examined(config: dict[str, Any], shapes: Shapes, dtype: str = "F32") -> Report:
    head = safetensors_bytes({name: (dtype, shape) for name, shape in shapes.items()}, data=False)
    size = len(head) + sum(4 * prod(shape) for shape in shapes.values())
    snapshot = Snapshot(
        model="fused",
        commit=None,
        source=Source.FOLDER,
        origin="fused",
        files=(RepoFile(name="model.safetensors", size=size),),
        config=TextFile(name="config.json", content=json.dumps(config).encode()),
        index=None,
        headers=(WeightHeader(name="model.safetensors", size=size, prefix=head),),
    )
    report = examine(snapshot, Options(requested="fused"))
    assert isinstance(report, Report)
    return report


@given(
    experts=st.integers(1, 5),
    width=st.integers(1, 4),
    hidden=st.integers(1, 4).map(lambda half: 2 * half),
    layers=st.integers(1, 3),
)
def test_whichever_form_is_stored_the_sums_are_the_same_and_nothing_is_left(
    experts, width, hidden, layers
):
    config = QWEN | {
        "num_experts": experts,
        "moe_intermediate_size": width,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
    }
    shapes = written(catalogue.expect(config_of(**config), "Qwen3MoeForCausalLM"))
    one_by_one = examined(config, shapes)
    together = examined(config, fused(shapes, "gate_proj", "up_proj", "down_proj"))
    assert together.verdict == one_by_one.verdict == "clean"
    assert together.residual == 0
    assert together.observed.parameters == one_by_one.observed.parameters
    assert together.observed.elements == one_by_one.observed.elements
    assert together.observed.layout == "all experts of a layer in one tensor"
    assert one_by_one.observed.layout is None


def implied_of(**changes: Any):
    config = config_of(**QWEN | changes)
    return written(catalogue.expect(config, "Qwen3MoeForCausalLM")).get


def cut(name: str, shape: tuple[int, ...] | None, **changes: Any) -> Unpacked:
    table = {f"{EXPERTS}.{name}": None if shape is None else ("F32", shape)}
    return separated(PLAIN, stored(table), implied_of(**changes))


def test_the_upper_half_is_the_gate_and_the_lower_is_the_other():
    assert pieces(cut("gate_up_proj", (3, 10, 6))) == {
        f"{EXPERTS}.{number}.{part}.weight": (5, 6)
        for number in range(3)
        for part in ("gate_proj", "up_proj")
    }
    assert pieces(cut("down_proj", (3, 6, 5))) == {
        f"{EXPERTS}.{number}.down_proj.weight": (6, 5) for number in range(3)
    }


@pytest.mark.slow
def test_of_fewer_experts_than_there_should_be_the_others_are_missing():
    shapes = fused(
        written(catalogue.expect(config_of(**QWEN), "Qwen3MoeForCausalLM")),
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    report = examined(QWEN, shapes | {f"{EXPERTS}.down_proj": (2, 6, 5)})
    (missing,) = (finding for finding in report.findings if finding.kind == "missing")
    assert missing.names == (f"{EXPERTS}.2.down_proj.weight",)
    assert report.residual == 0


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("gate_up_proj", (4, 10, 6), "holds 4 experts, the architecture has 3"),
        ("gate_up_proj", (2**40, 0, 6), "holds 1,099,511,627,776 experts, the architecture has 3"),
        ("gate_up_proj", (3, 9, 6), "has 9 rows for each expert, which cannot be two halves"),
        ("down_proj", (18, 5), r"is (18, 5); experts in one tensor have three axes"),
        ("down_proj", (), r"is (); experts in one tensor have three axes"),
    ],
)
def test_a_tensor_that_cannot_be_split_is_a_fault_and_stays_unsplit(name, shape, reason):
    unpacked = cut(name, shape)
    assert unpacked.tensors == ()
    assert faults(unpacked) == {reason: {f"{EXPERTS}.{name}"}}


@pytest.mark.parametrize("shape", [(3, 10, 6), (3, 12, 6), (3, 2, 1)])
def test_halves_of_another_shape_are_pieces_all_the_same_for_shapes_are_compared_later(shape):
    unpacked = cut("gate_up_proj", shape)
    assert set(pieces(unpacked).values()) == {(shape[1] // 2, shape[2])}
    assert unpacked.faults == ()


def test_where_only_an_index_names_it_the_config_says_how_many_experts_it_holds():
    assert pieces(cut("down_proj", None)) == {
        f"{EXPERTS}.{number}.down_proj.weight": None for number in range(3)
    }


@pytest.mark.parametrize(
    "implied",
    [
        {},  # no experts at all
        {f"{EXPERTS}.gate_up_proj": (3, 10, 6), f"{EXPERTS}.0.gate_proj.weight": (5, 6)},
    ],
)
def test_where_the_architecture_names_no_experts_one_by_one_nothing_is_cut(implied):
    tensors = stored({f"{EXPERTS}.gate_up_proj": ("F32", (3, 10, 6))})
    assert separated(PLAIN, tensors, implied.get) is PLAIN


def test_a_packed_fused_tensor_is_cut_as_its_layout_found_it():
    (tensor,) = stored({f"{EXPERTS}.down_proj": ("F8_E4M3", (3, 6, 5))})
    other = LogicalTensor(tensor._replace(name="a"), "a", (2,), "INT4")
    unpacked = Unpacked(layout="fp8", pieces=(other,), unchanged=(tensor,))
    after = separated(unpacked, (tensor,), implied_of())
    assert after.layout == "fp8; all experts of a layer in one tensor"
    assert after.tensors[0] == other
    assert [piece.dtype for piece in after.tensors[1:]] == ["F8_E4M3"] * 3
    assert {piece.stored for piece in after.tensors[1:]} == {tensor}


def test_only_the_shape_of_a_stored_tensor_is_called_stored():
    shapes = written(catalogue.expect(config_of(**QWEN), "Qwen3MoeForCausalLM"))
    together = fused(shapes, "gate_proj", "up_proj", "down_proj")
    report = examined(QWEN | {"moe_intermediate_size": 7}, together)
    reasons = [finding.reason for finding in report.findings if finding.kind == "mismatched"]
    assert {reason.partition(", expected")[0] for reason in reasons} == {
        "stored with a part of shape (5, 6)",
        "stored with a part of shape (6, 5)",
    }


@pytest.mark.oracle
@pytest.mark.parametrize("name", one_in(2, MIXTURES))
def test_a_model_stored_as_it_is_in_memory_is_clean(name, tmp_path):
    """The names and shapes of its state dict, which loading takes as well."""
    transformers = pytest.importorskip("transformers")
    import torch  # noqa: PLC0415 - with the oracle alone

    model_type, own = MIXTURES[name]
    small = {"hidden_size": 64, "moe_intermediate_size": 32, "intermediate_size": 48}
    values = FEW | own | small | {"model_type": model_type, "architectures": [name]}
    model_class = getattr(transformers, name)
    with torch.device("meta"):
        model = model_class(model_class.config_class.from_dict(dict(values)))
    tied = set(model.all_tied_weights_keys)
    shapes = {each: tuple(x.shape) for each, x in model.state_dict().items() if each not in tied}
    assert any(each.endswith(".experts.gate_up_proj") for each in shapes)
    report = examined(values, shapes)
    assert report.verdict == "clean", report.findings
    assert report.residual == 0
    (tmp_path / "config.json").write_text(json.dumps(values))
    write(tmp_path / "model.safetensors", {each: ("F32", shape) for each, shape in shapes.items()})
    hides_what_it_cannot_show(tmp_path)
    its_total_is_told(tmp_path)

"""Experts that are stored as one tensor are the experts that the architecture names one by one."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import one_in
from support.layouts.indexed import hides_what_it_cannot_show, its_total_is_told
from support.layouts.packed import faults, pieces, stored
from support.sharding import write
from support.small_snapshots import snapshot_of

from auditor import Report, audit
from auditor.analytic import Config, Role, catalogue
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.layouts.fused import separated
from auditor.layouts.packing import PLAIN, LogicalTensor, Unpacked

Shapes = dict[str, tuple[int, ...]]
CLASS = "Qwen3MoeForCausalLM"
QWEN = {
    "model_type": "qwen3_moe",
    "architectures": [CLASS],
    "vocab_size": 7,
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "moe_intermediate_size": 5,
    "num_experts": 3,
    "num_experts_per_tok": 1,
}
EXPERTS = "model.layers.0.mlp.experts"


def one_by_one(config: dict[str, Any]) -> Shapes:
    tensors = catalogue.expect(Config(values=config), CLASS).tensors
    return {one.name: one.shape for one in tensors if one.role in {Role.PARAMETER, Role.BUFFER}}


def together(shapes: Shapes) -> Shapes:
    """The same checkpoint with all experts of a layer in two tensors."""
    kept = {name: shape for name, shape in shapes.items() if ".experts." not in name}
    for name, shape in shapes.items():
        module, _, part = name.partition(".experts.")
        number, _, last = part.partition(".")
        if last == "down_proj.weight":
            kept[f"{module}.experts.down_proj"] = (int(number) + 1, *shape)
        elif last == "gate_proj.weight":
            kept[f"{module}.experts.gate_up_proj"] = (int(number) + 1, 2 * shape[0], shape[1])
    return kept


def examined(config: dict[str, Any], shapes: Shapes) -> Report:
    tensors = stored({name: ("F32", shape) for name, shape in shapes.items()})
    report = examine(snapshot_of(tensors, **config), Options(requested="fused"))
    assert isinstance(report, Report)
    assert report.residual == 0
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
    sizes = {"num_experts": experts, "moe_intermediate_size": width}
    config = QWEN | sizes | {"hidden_size": hidden, "num_hidden_layers": layers}
    shapes = one_by_one(config)
    apart, fused = examined(config, shapes), examined(config, together(shapes))
    assert fused.verdict == apart.verdict == "clean"
    assert fused.observed.parameters == apart.observed.parameters
    assert fused.observed.elements == apart.observed.elements
    layout = "all experts of a layer in one tensor"
    assert (fused.observed.layout, apart.observed.layout) == (layout, None)


def test_of_fewer_experts_than_there_should_be_the_others_are_missing():
    shapes = together(one_by_one(QWEN)) | {f"{EXPERTS}.down_proj": (2, 6, 5)}
    (missing,) = (one for one in examined(QWEN, shapes).findings if one.kind == "missing")
    assert missing.names == (f"{EXPERTS}.2.down_proj.weight",)


def test_only_the_shape_of_a_stored_tensor_is_called_stored():
    report = examined(QWEN | {"moe_intermediate_size": 7}, together(one_by_one(QWEN)))
    reasons = [finding.reason for finding in report.findings if finding.kind == "mismatched"]
    assert {reason.partition(", expected")[0] for reason in reasons} == {
        "stored with a part of shape (5, 6)",
        "stored with a part of shape (6, 5)",
    }


# --- single tensors -------------------------------------------------------------------------------


def cut(name: str, shape: tuple[int, ...] | None) -> Unpacked:
    table = {f"{EXPERTS}.{name}": None if shape is None else ("F32", shape)}
    return separated(PLAIN, stored(table), one_by_one(QWEN).get)


def test_a_stack_is_a_tensor_for_each_part_of_each_expert(subtests):
    for name, shape, parts, piece in [
        ("gate_up_proj", (3, 10, 6), ("gate_proj", "up_proj"), (5, 6)),
        ("gate_up_proj", (3, 2, 1), ("gate_proj", "up_proj"), (1, 1)),  # compared later
        ("down_proj", (3, 6, 5), ("down_proj",), (6, 5)),
        ("down_proj", None, ("down_proj",), None),  # only an index names it
    ]:
        with subtests.test(name=name, shape=shape, parts=parts, piece=piece):
            assert pieces(cut(name, shape)) == {
                f"{EXPERTS}.{number}.{part}.weight": piece for number in range(3) for part in parts
            }


def test_a_tensor_that_cannot_be_split_is_a_fault_and_stays_unsplit(subtests):
    for name, shape, reason in [
        ("gate_up_proj", (4, 10, 6), "holds 4 experts, the architecture has 3"),
        ("gate_up_proj", (2**40, 0, 6), "holds 1,099,511,627,776 experts, the architecture has 3"),
        ("gate_up_proj", (3, 9, 6), "has 9 rows for each expert, which cannot be two halves"),
        ("down_proj", (18, 5), "is (18, 5); experts in one tensor have three axes"),
    ]:
        with subtests.test(name=name, shape=shape, reason=reason):
            unpacked = cut(name, shape)
            assert (unpacked.tensors, faults(unpacked)) == ((), {reason: {f"{EXPERTS}.{name}"}})


def test_where_the_architecture_names_no_experts_one_by_one_nothing_is_cut(subtests):
    for implied in [{}, {f"{EXPERTS}.gate_up_proj": (3, 10, 6)}]:
        with subtests.test(implied=implied):
            tensors = stored({f"{EXPERTS}.gate_up_proj": ("F32", (3, 10, 6))})
            assert separated(PLAIN, tensors, implied.get) is PLAIN


def test_a_packed_fused_tensor_is_cut_as_its_layout_found_it():
    (tensor,) = stored({f"{EXPERTS}.down_proj": ("F8_E4M3", (3, 6, 5))})
    other = LogicalTensor(tensor._replace(name="a"), "a", (2,), "INT4")
    unpacked = Unpacked(layout="fp8", pieces=(other,), unchanged=(tensor,))
    after = separated(unpacked, (tensor,), one_by_one(QWEN).get)
    assert after.layout == "fp8; all experts of a layer in one tensor"
    assert after.tensors[0] == other
    assert [piece.dtype for piece in after.tensors[1:]] == ["F8_E4M3"] * 3
    assert {piece.stored for piece in after.tensors[1:]} == {tensor}


# --- transformers ---------------------------------------------------------------------------------

# Of the ten types with closed forms that hold in one tensor what they store in many, one for each
# way of naming them; on the meta device nothing but their number needs to be small.
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
SMALL = {
    "hidden_size": 64,
    "moe_intermediate_size": 32,
    "intermediate_size": 48,
    "dtype": "float32",
}
SMALL |= {"num_hidden_layers": 2, "num_experts_per_tok": 2}


@pytest.mark.oracle
def test_a_model_stored_as_it_is_in_memory_is_clean(subtests, tmp_path):
    """The names and shapes of its state dict, which loading takes as well."""
    for name in one_in(2, MIXTURES):
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            transformers = pytest.importorskip("transformers")
            import torch  # noqa: PLC0415 - with the oracle alone

            model_type, own = MIXTURES[name]
            values = SMALL | own | {"model_type": model_type, "architectures": [name]}
            model_class = getattr(transformers, name)
            with torch.device("meta"):
                model = model_class(model_class.config_class.from_dict(dict(values)))
            tied = set(model.all_tied_weights_keys)
            shapes = {
                each: tuple(x.shape) for each, x in model.state_dict().items() if each not in tied
            }
            assert any(each.endswith(".experts.gate_up_proj") for each in shapes)
            (place / "config.json").write_text(json.dumps(values))
            write(
                place / "model.safetensors",
                {each: ("F32", shape) for each, shape in shapes.items()},
            )
            report = audit(str(place))
            assert (report.verdict, report.residual) == ("clean", 0), report.findings
            hides_what_it_cannot_show(place)
            its_total_is_told(place)

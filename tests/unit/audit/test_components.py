"""Repositories of sentence transformers, end to end: a transformer and the modules behind it."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.pipelines import (
    BERT,
    DENSE,
    DENSE_TENSORS,
    SECOND,
    encoders,
    kinds,
    model,
    parts,
    sentence,
    text,
    under,
    verdicts,
    written,
)
from support.torch_files import torch_bytes

import auditor
from auditor import Report, UsageError
from auditor.findings import Missing, MissingComponent, OtherWeights


@pytest.mark.parametrize("as_torch", [False, True])
def test_a_dense_module_closes_next_to_the_transformer(tmp_path: Path, *, as_torch: bool) -> None:
    dense = model(DENSE, DENSE_TENSORS)
    if as_torch:
        dense = {"config.json": text(DENSE), "pytorch_model.bin": torch_bytes(DENSE_TENSORS)}
    report = auditor.audit(written(tmp_path, sentence(SECOND, **{"2_Dense": dense})))
    assert isinstance(report, Report)
    assert (report.target, report.verdict, report.residual) == ("SentenceTransformer", "clean", 0)
    assert verdicts(report) == {".": "clean", "2_Dense": "clean"}
    dense = parts(report)["2_Dense"]
    assert (dense.target, dense.expected.formula) == ("Dense", "I*O + O")
    assert dense.expected.parameters == 4 * 3 + 3


def test_a_dense_module_without_its_bias_is_found_out(tmp_path: Path) -> None:
    dense = model(DENSE, {"linear.weight": ("F32", (3, 4))})
    report = auditor.audit(written(tmp_path, sentence(SECOND, **{"2_Dense": dense})))
    assert kinds(parts(report)["2_Dense"]) == [Missing]
    assert parts(report)["2_Dense"].findings[0].names == ("linear.bias",)


def test_a_dense_module_without_its_weights_is_found_out(tmp_path: Path) -> None:
    files = sentence(SECOND, **{"2_Dense": {"config.json": text(DENSE)}})
    report = auditor.audit(written(tmp_path, files))
    assert kinds(report) == [MissingComponent]


def test_a_module_that_holds_nothing_need_not_have_a_folder(tmp_path: Path) -> None:
    normal = {**SECOND, "path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}
    files = sentence(SECOND, normal, **{"2_Dense": model(DENSE, DENSE_TENSORS)})
    assert auditor.audit(written(tmp_path, files)).verdict == "clean"


def test_a_transformer_that_is_not_read_keeps_its_modules_from_being_clean(tmp_path: Path) -> None:
    files = sentence(SECOND, **{"2_Dense": model(DENSE, DENSE_TENSORS)})
    del files["model.safetensors"]
    lost = auditor.audit(written(tmp_path, files))
    assert (lost.verdict, kinds(lost)) == ("findings", [MissingComponent])
    (tmp_path / "tf_model.h5").write_bytes(b"")
    outcome = auditor.audit(str(tmp_path))
    assert verdicts(outcome) == {".": "unaudited", "2_Dense": "clean"}
    assert outcome.verdict == "unaudited"


def test_a_module_that_is_not_known_is_tallied(tmp_path: Path) -> None:
    strange = {**SECOND, "type": "pylate.models.Dense.Dense"}
    lstm = {**SECOND, "type": "sentence_transformers.models.LSTM"}
    for number, module in enumerate((strange, lstm)):
        files = sentence(module, **{"2_Dense": model(DENSE, DENSE_TENSORS)})
        outcome = auditor.audit(written(tmp_path / str(number), files))
        assert verdicts(outcome) == {".": "clean", "2_Dense": "unaudited"}
        assert parts(outcome)["2_Dense"].observed.parameters == 15


def test_a_transformer_in_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    entry = {"idx": 0, "name": "0", "path": "0_BERT", "type": "sentence_transformers.Transformer"}
    files = {"modules.json": text([entry]), **under("0_BERT", model(BERT))}
    report = auditor.audit(written(tmp_path, files))
    assert (report.verdict, verdicts(report)) == ("clean", {"0_BERT": "clean"})
    assert parts(report)["0_BERT"].target == "BertModel"


def test_a_sentence_transformer_of_one_model_is_a_plain_report(tmp_path: Path) -> None:
    plain = auditor.audit(written(tmp_path / "plain", model(BERT)))
    report = auditor.audit(written(tmp_path / "sentence", sentence()))
    assert isinstance(report, Report)
    same = {"requested": plain.requested, "model": plain.model, "origin": plain.origin}
    assert replace(report, **same) == plain
    stray = sentence(**{"checkpoint-5": model(BERT)})
    report = auditor.audit(written(tmp_path / "stray", stray))
    assert (report.parts, kinds(report), report.target) == ((), [OtherWeights], "BertModel")


def test_as_names_the_class_of_the_transformer_and_of_nothing_else(tmp_path: Path) -> None:
    files = sentence(SECOND, **{"2_Dense": model(DENSE, DENSE_TENSORS)})
    report = auditor.audit(written(tmp_path / "one", files), target="BertForMaskedLM")
    assert [part.target for part in report.parts] == ["BertForMaskedLM", "Dense"]
    with pytest.raises(UsageError, match="--as names one class"):
        auditor.audit(written(tmp_path / "two", encoders()), target="BertForMaskedLM")

"""Repositories of sentence transformers, end to end: a transformer and the modules behind it."""

import tempfile
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
from auditor.findings import ConfigOverwritten, Missing, MissingComponent, OtherWeights


def test_a_dense_module_closes_next_to_the_transformer(subtests, tmp_path):
    for as_torch in [False, True]:
        with subtests.test(as_torch=as_torch):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            dense = model(DENSE, DENSE_TENSORS)
            if as_torch:
                dense = {
                    "config.json": text(DENSE),
                    "pytorch_model.bin": torch_bytes(DENSE_TENSORS),
                }
            report = auditor.audit(written(place, sentence(SECOND, **{"2_Dense": dense})))
            assert isinstance(report, Report)
            assert (report.target, report.verdict, report.residual) == (
                "SentenceTransformer",
                "clean",
                0,
            )
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


def test_a_module_without_its_settings_is_found_out(subtests, tmp_path):
    for module in ["BoW", "CNN", "LSTM", "Pooling", "Router", "StaticEmbedding", "WordEmbeddings"]:
        with subtests.test(module=module):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            entry = {**SECOND, "path": "9", "type": f"sentence_transformers.models.{module}"}
            for number, folder in enumerate(({}, {"9": {"README.md": b""}})):
                report = auditor.audit(written(place / str(number), sentence(entry, **folder)))
                assert (kinds(report), report.findings[0].names) == ([MissingComponent], ("9",))


def test_a_module_whose_settings_have_defaults_needs_no_folder(subtests, tmp_path):
    for module in ["Dropout", "Normalize", "SpladePooling"]:
        with subtests.test(module=module):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            entry = {**SECOND, "path": "9", "type": f"sentence_transformers.models.{module}"}
            assert auditor.audit(written(place, sentence(entry))).verdict == "clean"


OLD_POOLING = {"word_embedding_dimension": 4, "pooling_mode_mean_tokens": True}
NEW_POOLING = {"embedding_dimension": 4, "pooling_mode": "mean", "include_prompt": True}


def test_settings_of_another_module_in_a_transformers_config_are_the_cause(subtests, tmp_path):
    for folder in ["", "0_BERT"]:
        for settings in [OLD_POOLING, NEW_POOLING, DENSE]:
            with subtests.test(settings=settings, folder=folder):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                entry = {
                    **SECOND,
                    "path": folder,
                    "type": "sentence_transformers.models.Transformer",
                }
                files = {**model(BERT), "config.json": text(settings)}
                files = {
                    "modules.json": text([entry]),
                    **(under(folder, files) if folder else files),
                }
                outcome = auditor.audit(written(place, files))
                found = parts(outcome)[folder] if folder else outcome
                assert (outcome.verdict, kinds(found)) == ("findings", [ConfigOverwritten])
                assert [one.cause for one in found.diagnosis] == ["config-overwritten"]


def test_settings_of_a_module_in_its_own_folder_are_sound(tmp_path: Path) -> None:
    dense = auditor.audit(written(tmp_path / "dense", model(DENSE, DENSE_TENSORS)))
    assert dense.findings == ()
    pooled = model(BERT) | {"config.json": text(OLD_POOLING)}
    assert kinds(auditor.audit(written(tmp_path / "pooling", pooled))) == [ConfigOverwritten]


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
    same = {name: getattr(plain, name) for name in ("requested", "model", "origin", "companions")}
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

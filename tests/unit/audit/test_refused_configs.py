"""A config that transformers refuses is a finding beside the comparison, end to end."""

import json
import tempfile
from pathlib import Path

import pytest
from support.bad_input.making import CONFIG, TENSORS, WEIGHTS, whole
from support.builders import safetensors_bytes
from support.checkpoints import TINY

import auditor
from auditor import Report, Unaudited
from auditor.findings import BadConfig, Missing, is_of_repository

CANNOT = "transformers 5.24 cannot build BertModel"


def says(folder: Path, **changes: object) -> str:
    values = {"architectures": ["BertModel"], **TINY, **changes}
    (folder / CONFIG).write_text(json.dumps(values))
    return str(folder)


def reasons(outcome: Report | Unaudited) -> list[str]:
    return [one.reason for one in outcome.findings if isinstance(one, BadConfig)]


def test_the_config_is_named_and_the_weights_are_compared_all_the_same(subtests, tmp_path):
    for changes, reason in [
        (
            {"pad_token_id": 11},
            f"pad_token_id is 11, and the embedding has rows 0 to 10: {CANNOT}",
        ),
        (
            {"hidden_act": "gleu"},
            f"hidden_act is the string 'gleu', which is not an activation: {CANNOT}",
        ),
        (
            {"use_cache": "yes"},
            "transformers 5.24 refuses it: use_cache is the string 'yes', expected true or false",
        ),
        (
            {"dtype": "torch.float16"},
            (
                "transformers 5.24 refuses it: dtype is the string 'torch.float16', "
                'expected "float16"'
            ),
        ),
        (
            {"torch_dtype": "auto"},
            (
                "transformers 5.24 refuses it: torch_dtype is the string 'auto', "
                "expected the name of a dtype, or no such key"
            ),
        ),
        (
            {"layer_types": ["full_attention"] * 6},
            "transformers 5.24 refuses it: layer_types has 6 entries, and num_hidden_layers is 2",
        ),
    ]:
        with subtests.test(changes=changes, reason=reason):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = whole(place / "model")
            report = auditor.audit(says(folder, **changes))
            assert isinstance(report, Report)
            assert (report.verdict, report.residual, reasons(report)) == ("findings", 0, [reason])
            errors = [one for one in report.findings if one.severity == "error"]
            assert [one for one in errors if not is_of_repository(one)] == [
                BadConfig(file=CONFIG, reason=reason)
            ]
            assert report.load_report is not None
            assert report.load_report.raises == reason
            rest = dict(list(TENSORS.items())[1:])
            (folder / WEIGHTS).write_bytes(safetensors_bytes(rest))
            report = auditor.audit(says(folder, **changes))
            assert any(isinstance(one, Missing) for one in report.findings)
            assert reasons(report) == [reason]


def test_all_faults_are_reported_where_nothing_follows_from_the_config_either(tmp_path):
    folder = whole(tmp_path / "model")
    report = auditor.audit(says(folder, hidden_size=None, use_cache=1, is_decoder="no"))
    assert isinstance(report, Report)
    assert report.residual is None
    found = {reason.removeprefix("transformers 5.24 refuses it: ") for reason in reasons(report)}
    assert {reason.partition(" ")[0] for reason in found} == {
        "hidden_size",
        "use_cache",
        "is_decoder",
    }


def test_a_config_with_a_thousand_faults_is_bounded(tmp_path):
    folder = whole(tmp_path / "model")
    odd = {key: [] for key in ("use_cache", "is_decoder", "layer_norm_eps", "pad_token_id")}
    per_layer = {"rope_parameters": {str(number): {"rope_type": "?"} for number in range(5000)}}
    report = auditor.audit(says(folder, **odd, **per_layer))
    assert 4 <= len(reasons(report)) <= 32
    assert all(len(reason) < 400 and "\n" not in reason for reason in reasons(report))


def test_faults_of_weights_of_an_unknown_layout_are_reported(tmp_path):
    folder = whole(tmp_path / "model")
    packed = {"quantization_config": {"quant_method": "zipnn"}}
    outcome = auditor.audit(says(folder, pad_token_id=11, **packed))
    assert isinstance(outcome, Unaudited)
    assert reasons(outcome) == [f"pad_token_id is 11, and the embedding has rows 0 to 10: {CANNOT}"]


def test_a_repositorys_own_class_need_not_suit_transformers_config_class(tmp_path):
    folder = whole(tmp_path / "model")
    own = {"auto_map": {"AutoModel": "modeling.BertModel"}}
    assert reasons(auditor.audit(says(folder, hidden_act="own", alibi=True, **own))) == []
    assert len(reasons(auditor.audit(says(folder, hidden_act="own")))) == 1


@pytest.mark.oracle
def test_a_dtype_that_torch_does_not_have_is_refused(subtests, tmp_path):
    for spelt in ["auto", "torch.bfloat16", "bfloat16", "half", "float", "double"]:
        for key in ["dtype", "torch_dtype"]:
            with subtests.test(key=key, spelt=spelt):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                import transformers  # noqa: PLC0415 - seconds

                folder = says(whole(place / "model"), **{key: spelt})
                try:
                    transformers.AutoConfig.from_pretrained(folder)
                except AttributeError:
                    refused = True
                else:
                    refused = False
                assert [key in reason for reason in reasons(auditor.audit(folder))] == [
                    True
                ] * refused


@pytest.mark.oracle
def test_a_dtype_is_refused_that_no_model_is_built_in(subtests, tmp_path):
    for dtype in ["int8", "bool", "float8_e4m3fn", "float16", "float64"]:
        with subtests.test(dtype=dtype):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            import transformers  # noqa: PLC0415 - seconds

            folder = says(whole(place / "model"), dtype=dtype)
            try:
                transformers.BertModel.from_pretrained(folder)
            except (TypeError, ValueError):
                refused = True
            else:
                refused = False
            report = auditor.audit(folder)
            assert [dtype in reason for reason in reasons(report)] == [True] * refused
            packed = says(Path(folder), dtype=dtype, quantization_config={"quant_method": "fp8"})
            assert not any(dtype in reason for reason in reasons(auditor.audit(packed)))

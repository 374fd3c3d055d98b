"""A config that transformers refuses is a finding beside the comparison: tests/cases/config."""

import json
import tempfile
from pathlib import Path

import pytest
from support.bad_input.making import CONFIG, whole
from support.checkpoints import TINY

import auditor
from auditor import Report, Unaudited
from auditor.findings import BadConfig


def says(folder: Path, **changes: object) -> str:
    values = {"architectures": ["BertModel"], **TINY, **changes}
    (folder / CONFIG).write_text(json.dumps(values))
    return str(folder)


def reasons(outcome: Report | Unaudited) -> list[str]:
    return [one.reason for one in outcome.findings if BadConfig.describes(one)]


def test_the_load_report_is_that_of_an_error(tmp_path):
    report = auditor.audit(says(whole(tmp_path / "model"), hidden_act="gleu"))
    assert isinstance(report, Report)
    [reason] = reasons(report)
    assert report.load_report is not None
    assert (report.load_report.raises, report.residual) == (reason, 0)


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

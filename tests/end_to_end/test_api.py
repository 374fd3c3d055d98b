"""The Python API does what the commands do, and takes text where text is natural."""

import json
import logging
import shutil

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.running import run

import auditor

BUNDLED = {"source": "bundled"}


@pytest.fixture
def prefixed(tmp_path):
    """A BERT whose names all have one prefix too many."""
    tensors = {f"module.{one.name}": ("F32", one.shape) for one in stored_by(expect("BertModel"))}
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    (tmp_path / "config.json").write_bytes(config_bytes(architectures=["BertModel"]))
    return tmp_path


def test_a_claim_may_be_text_or_a_list():
    def verdicts(claims):
        return auditor.claim("bert-base-chinese", claims, **BUNDLED)

    [alone] = verdicts("102290312")
    assert alone.verdict == "confirmed"
    encoder = auditor.Claim("85054464", "encoder")
    assert verdicts(["102290312", encoder]) == (alone, *verdicts(encoder))


def test_memory_is_what_the_command_prints():
    printed = run("memory", "bert-base-chinese", "--source", "bundled", "--format", "json").stdout
    assert auditor.memory("bert-base-chinese", **BUNDLED) == json.loads(printed)
    with pytest.raises(auditor.UsageError, match="dtypes is 'fp33', expected a dtype"):
        auditor.memory("bert-base-chinese", dtypes=["fp33"], **BUNDLED)


def test_fix_plans_and_carries_out(prefixed):
    before = {path.name: path.read_bytes() for path in prefixed.iterdir()}
    plan = auditor.fix(prefixed)
    assert (plan.before.verdict, plan.after.verdict) == ("findings", "clean")
    assert {path.name: path.read_bytes() for path in prefixed.iterdir()} == before
    assert auditor.fix(prefixed, apply=True) == plan
    assert {path.name: path.read_bytes() for path in prefixed.iterdir()} == before
    assert auditor.audit(f"{prefixed}.fixed").verdict == "clean"
    with pytest.raises(auditor.UsageError, match="expected some of"):
        auditor.fix(prefixed, allow=["anything"])


def test_a_snapshot_is_examined_or_written_and_audited(prefixed, tmp_path_factory):
    file = tmp_path_factory.mktemp("snapshot") / "m.json.gz"
    snapshot = auditor.snapshot(prefixed, file)
    shutil.rmtree(prefixed)
    examined = auditor.examine(snapshot, auditor.Options(requested="m"))
    assert examined.findings == auditor.audit(file).findings != ()


def test_a_path_is_as_good_as_its_text(prefixed):
    assert auditor.audit(prefixed).findings == auditor.audit(str(prefixed)).findings
    assert auditor.explain(prefixed).expected == auditor.explain(str(prefixed)).expected
    assert auditor.diff(prefixed, str(prefixed)).same


def test_ignored_findings_may_be_text(prefixed):
    report = auditor.audit(prefixed, ignore="missing")
    kinds = {finding.kind for finding in auditor.audit(prefixed).findings}
    assert {finding.kind for finding in report.findings} == kinds - {"missing"}
    assert {finding.kind for finding in report.ignored} == {"missing"}


def test_the_logger_gets_a_line_for_each_audit(prefixed, caplog):
    with caplog.at_level(logging.INFO, logger="auditor"):
        auditor.audit(prefixed)
    [record] = caplog.records
    assert (record.name, record.getMessage().startswith(f"{prefixed}: findings; 0 requests")) == (
        "auditor",
        True,
    )


def test_verbose_prints_the_line_of_the_logger_and_quiet_does_not(prefixed):
    assert f"audit: {prefixed}: findings; 0 requests" in run(str(prefixed), "-v").stderr
    assert run(str(prefixed), "-v", "-q").stderr == ""


def test_every_name_has_a_docstring_and_is_in_the_reference():
    assert all(getattr(auditor, name).__doc__ for name in auditor.__all__)
    assert auditor.__version__ in run("--version").stdout

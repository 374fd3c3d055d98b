"""Of more tensors than anybody reads some are named and all are counted: laws 2 and 3 hold."""

import json

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by

from auditor import audit
from auditor.audit import outcome
from auditor.findings import Unexpected
from auditor.findings.ignore import Ignore
from auditor.formats import View
from auditor.formats.registry import FORMATS
from auditor.reconciler import unexpected as module

FOREIGN = {f"x.{number}.w": ("F32", (number,)) for number in range(12)}  # 0 + 1 + ... + 11 = 66


@pytest.fixture
def folder(tmp_path, monkeypatch) -> str:
    """A clean BERT with twelve tensors that nobody knows, of which five are named."""
    monkeypatch.setattr(module, "MOST_NAMED", 5)
    own = {one.name: (one.dtype, one.shape) for one in stored_by(expect("BertModel"))}
    (tmp_path / "config.json").write_bytes(config_bytes(architectures=["BertModel"]))
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(own | FOREIGN))
    return str(tmp_path)


def unexpected(outcome) -> list[Unexpected]:
    return [one for one in outcome.findings if Unexpected.describes(one)]


def test_the_first_are_named_and_all_are_counted(folder):
    report = audit(folder)
    [one] = unexpected(report)
    assert one.names == tuple(f"x.{number}.w" for number in range(5))
    assert (one.more, one.count, one.parameters, one.explains) == (7, 12, 66, 66)
    assert one.reason.endswith("; 7 more are counted and not named")
    assert report.residual == 0
    assert report.observed.tensors == len(stored_by(expect("BertModel"))) + 12


def test_every_format_counts_all_of_them(folder):
    report = audit(folder)
    view = View(depth=2, width=80, color=False)
    [text] = FORMATS["json"]([report], view).values()
    found = json.loads(text)["findings"]
    assert [(one["count"], len(one["names"])) for one in found if one["kind"] == "unexpected"] == [
        (12, 5)
    ]
    [text] = FORMATS["terminal"]([report], view).values()
    assert "unexpected (12 names, 66 parameters)" in text
    assert "unexpected,warning,12,66,66" in FORMATS["csv"]([report], view)["findings.csv"]


def test_what_is_not_named_is_ignored_by_a_star_and_by_nothing_less(folder):
    everything = audit(folder, ignore=(Ignore.parse("unexpected"),))
    assert everything.verdict == "clean"
    assert [one.count for one in everything.ignored] == [12]
    some = audit(folder, ignore=(Ignore.parse("unexpected:x.*"),))
    assert [(one.count, one.names) for one in unexpected(some)] == [(7, ())]
    assert [(one.count, one.parameters) for one in some.ignored] == [(5, 10)]
    assert (some.verdict, some.residual) == ("findings", 0)
    assert sum(one.explains for one in (*some.findings, *some.ignored)) == 66


def test_modules_that_nothing_expects_are_listed_in_outline(folder, monkeypatch):
    monkeypatch.setattr(outcome, "MOST_STRANGE_MODULES", 3)
    report = audit(folder)
    rows = {row.prefix: row for row in report.modules}
    assert rows["x"].tensors == 12
    assert rows["x"].parameters == 66
    assert not any(prefix.startswith("x.") for prefix in rows)
    assert "encoder.layer.0.attention.self.query" in rows
    note = "modules of tensors that nothing expects are listed down to depth 1: below, there are"
    assert [one for one in report.notes if one.startswith(note)]
    assert report.residual == 0

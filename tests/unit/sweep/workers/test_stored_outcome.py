"""The stored form of an outcome: its columns and its JSON say the same."""

from support.sweep_models import FAULTS

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.sweep.store.schema import merged_object
from auditor.sweep.workers.stored_outcome import recorded


def snapshot(files):
    heads = [
        WeightHeader(name=name, size=len(content), prefix=_head(content))
        for name, content in files.items()
        if name.endswith(".safetensors")
    ]
    return Snapshot(
        model="o/n",
        commit="a" * 40,
        source=Source.HUB,
        origin="read from a test",
        files=tuple(RepoFile(name=name, size=None) for name in sorted(files)),
        config=TextFile(name="config.json", content=files["config.json"]),
        headers=tuple(heads),
    )


def _head(content):
    return content[: 8 + int.from_bytes(content[:8], "little")]


def test_the_columns_are_those_of_the_json():
    outcome = examine(snapshot(FAULTS["missing"](3)), Options(requested="o/n"))
    record = recorded(outcome)
    kept = record.stored_outcome
    value = merged_object(kept.content, kept.shared and kept.shared.content)
    severities = [one["severity"] for one in value["findings"]]
    assert record.summary._asdict() == {
        **{name: value[name] for name in ("verdict", "reason", "target", "model_type", "residual")},
        "errors": severities.count("error"),
        "warnings": severities.count("warning"),
        "infos": severities.count("info"),
        "blind": 0,
        **{name: value["observed"][name] for name in ("tensors", "elements", "parameters")},
        "expected": value["expected"]["parameters"],
        **value["fetched"],
    }

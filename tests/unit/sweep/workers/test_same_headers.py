"""What is remembered of one model and said of another is what an audit of the other says."""

import json
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.checkpoints import TINY
from support.sweep_models import FAULTS, healthy

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.formats import as_json
from auditor.sweep.store.packing import merged_object
from auditor.sweep.workers import same_headers
from auditor.sweep.workers.outcome_key import WRITERS
from auditor.sweep.workers.recent import Recent
from auditor.sweep.workers.same_headers import audited, recorded, summary_of


def snapshot(files, model="o/n", commit="a" * 40, fetched=Fetched()):  # noqa: B008 - frozen
    heads = [
        WeightHeader(name=name, size=len(content), prefix=_head(content))
        for name, content in files.items()
        if name.endswith(".safetensors")
    ]
    return Snapshot(
        model=model,
        commit=commit,
        source=Source.HUB,
        origin="read from a test",
        files=tuple(RepoFile(name=name, size=None) for name in sorted(files)),
        config=TextFile(name="config.json", content=files["config.json"]),
        headers=tuple(heads),
        fetched=fetched,
    )


def _head(content):
    return content[: 8 + int.from_bytes(content[:8], "little")]


def said(snapshot):
    """What an audit without any memory says."""
    outcome = examine(snapshot, Options(requested=snapshot.model))
    return as_json.render(outcome), summary_of(outcome)


def examined(alike, snapshot):
    """The outcome as it is recorded, and whether it had to be worked out."""
    with patch.object(same_headers, "examine", wraps=examine) as worked_out:
        record = audited(snapshot, alike)
    return record, worked_out.called


def written(kept):
    """The JSON object that a row stands for, and its text."""
    value = merged_object(kept.content, kept.shared and kept.shared.content)
    return value, json.dumps(value, separators=(",", ":"))


def remembered(alike, snapshot):
    record, _ = examined(alike, snapshot)
    return written(record.kept)[1], record.summary


NAMES = st.from_regex(r"[a-z][a-z\"\\<é]{0,8}/[a-z]{1,8}", fullmatch=True)
COSTS = st.builds(
    Fetched, requests=st.integers(0, 9), bytes=st.integers(0, 10**9), seconds=st.floats(0, 100)
)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    kind=st.sampled_from([None, *FAULTS]),
    names=st.lists(NAMES, min_size=2, max_size=4),
    costs=st.lists(COSTS, min_size=4, max_size=4),
)
def test_an_outcome_from_memory_is_the_outcome(kind, names, costs):
    files = FAULTS[kind](3) if kind else healthy(3)
    alike = Recent()
    for name, fetched, digit in zip(names, costs, "0123", strict=False):
        one = snapshot(files, name, digit * 40, fetched)
        assert remembered(alike, one) == said(one)


@pytest.mark.slow
@given(
    changes=st.dictionaries(
        st.sampled_from([*WRITERS, *TINY, "dtype", "tie_word_embeddings", "num_labels"]),
        st.sampled_from([0, 1, 2, 4, 8, True, None, "float16", "sweep/other"]),
        max_size=3,
    )
)
def test_of_configs_that_differ_anywhere_each_gets_its_own_outcome(changes):
    files = healthy(3)
    alike = Recent()
    examined(alike, snapshot(files))
    config = {**json.loads(files["config.json"]), **changes}
    other = snapshot({**files, "config.json": json.dumps(config).encode()}, "o/other")
    assert remembered(alike, other) == said(other)


@pytest.mark.parametrize("name", WRITERS)
def test_models_whose_configs_differ_by_their_authors_are_alike(name):
    files = healthy(3)
    config = json.loads(files["config.json"])
    alike = Recent()
    first, other = (
        snapshot({**files, "config.json": json.dumps({**config, name: value}).encode()}, model)
        for model, value in (("o/n", "one"), ("o/other", "another"))
    )
    assert examined(alike, first)[1]
    assert not examined(alike, other)[1]


CHANGES = {
    "absent shard": lambda one: replace(one, unopened=("model-2.safetensors",)),
    "copy": lambda one: replace(one, partial=True),
    "file beside": lambda one: replace(one, files=(*one.files, RepoFile(name="tf.h5", size=3))),
    "size": lambda one: replace(
        one, headers=(replace(one.headers[0], size=one.headers[0].size + 1),)
    ),
    "no weights": lambda one: replace(one, headers=()),
    "no config": lambda one: replace(one, config=None),
    "origin": lambda one: replace(one, origin="read elsewhere"),
    "source": lambda one: replace(one, source=Source.CACHE),
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_models_that_differ_in_anything_else_are_not_alike(changed):
    alike = Recent()
    examined(alike, snapshot(healthy(3)))
    other = changed(snapshot(healthy(3), "o/other"))
    assert remembered(alike, other) == said(other)


OTHER_FILES = st.sampled_from(
    [
        "README.md",
        "modeling_custom.py",
        "generation_config.json",
        "pytorch_model.bin.index.json",
        "runs/Nov21_02-03-04_host/events.out.tfevents.1.host",
        "tokenizer.json",
        "training_args.bin",
        "checkpoint-500/optimizer.pt",
        "model.fp16.safetensors",
        "adapter_config.json",
        "onnx/model.onnx",
        "pytorch_model.bin",
    ]
) | st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5})?\.(json|txt|bin|pt|h5|py)", fullmatch=True)


@pytest.mark.slow
@settings(max_examples=60)
@given(lists=st.lists(st.sets(OTHER_FILES, max_size=4), min_size=2, max_size=4))
def test_whatever_lies_beside_the_weights_each_model_gets_its_own_outcome(lists):
    alike = Recent()
    for names in lists:
        one = snapshot(healthy(3))
        files = tuple(RepoFile(name=name, size=None) for name in sorted(names))
        one = replace(one, files=tuple(sorted((*one.files, *files), key=lambda file: file.name)))
        assert remembered(alike, one) == said(one)


@pytest.mark.parametrize("name", ["README.md", "runs/a/events.out.tfevents.1", "training_args.bin"])
def test_models_of_which_one_has_a_file_that_is_no_weights_are_alike(name):
    one = snapshot(healthy(3))
    alike = Recent()
    examined(alike, one)
    other = replace(one, model="o/other", files=(*one.files, RepoFile(name=name, size=9)))
    assert not examined(alike, other)[1]


def test_models_of_which_one_has_other_weights_beside_them_are_not_alike():
    one = snapshot(healthy(3))
    alike = Recent()
    examined(alike, one)
    other = replace(one, files=(*one.files, RepoFile(name="tf_model.h5", size=9)))
    assert examined(alike, other)[1]


def test_what_could_not_be_audited_is_not_remembered():
    files = healthy(3)
    config = {**json.loads(files["config.json"]), "architectures": ["Strange"], "model_type": "x"}
    odd = {**files, "config.json": json.dumps(config).encode()}
    alike = Recent()
    for name in ("o/a", "o/b"):
        one = snapshot(odd, name)
        assert examined(alike, one)[1]
        assert remembered(alike, one) == said(one)


def test_the_memory_has_an_end():
    alike = Recent(3_000)
    for number in range(35):  # 7 vocabularies and 5 widths: none like another
        assert examined(alike, snapshot(healthy(number)))[1]
    assert not examined(alike, snapshot(healthy(34), "o/other"))[1]
    assert examined(alike, snapshot(healthy(0), "o/other"))[1]


def test_the_columns_are_those_of_the_json():
    outcome = examine(snapshot(FAULTS["missing"](3)), Options(requested="o/n"))
    record = recorded(outcome)
    found, _ = written(record.kept)
    severities = [one["severity"] for one in found["findings"]]
    assert record.summary._asdict() == {
        **{name: found[name] for name in ("verdict", "reason", "target", "model_type", "residual")},
        "errors": severities.count("error"),
        "warnings": severities.count("warning"),
        "infos": severities.count("info"),
        "blind": 0,
        **{name: found["observed"][name] for name in ("tensors", "elements", "parameters")},
        "expected": found["expected"]["parameters"],
        **found["fetched"],
    }

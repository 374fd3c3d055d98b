"""The outcome that is remembered of one model is the outcome of every model that is like it."""

import json
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.builders import safetensors_bytes
from support.checkpoints import TINY, config_bytes, expect, stored_by
from support.examples import examples
from support.sweep_models import FAULTS, healthy

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import (
    Fetched,
    PublishedText,
    RepoFile,
    Snapshot,
    Source,
    TextFile,
    WeightHeader,
)
from auditor.formats import as_json
from auditor.sweep.store.schema import merged_object
from auditor.sweep.workers import same_headers
from auditor.sweep.workers.outcome_key import WRITERS
from auditor.sweep.workers.same_headers import Recent, audited, recorded, summary_of


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


def expected(snapshot):
    """The JSON and the columns of an audit that remembers nothing."""
    outcome = examine(snapshot, Options(requested=snapshot.model))
    return as_json.render(outcome), summary_of(outcome)


def audited_with(remembered, snapshot):
    """The outcome as it is recorded, and whether the snapshot was examined."""
    with patch.object(same_headers, "examine", wraps=examine) as examined:
        record = audited(snapshot, remembered)
    return record, examined.called


def observed(remembered, snapshot):
    """The JSON and the columns of an audit that may use what is remembered."""
    record, _ = audited_with(remembered, snapshot)
    return written(record.stored_outcome)[1], record.summary


def written(kept):
    """The JSON object that a row contains, and its text."""
    value = merged_object(kept.content, kept.shared and kept.shared.content)
    return value, json.dumps(value, separators=(",", ":"))


NAMES = st.from_regex(r"[a-z][a-z\"\\<é]{0,8}/[a-z]{1,8}(-[1-9][bm])?", fullmatch=True)
COSTS = st.builds(
    Fetched, requests=st.integers(0, 9), bytes=st.integers(0, 10**9), seconds=st.floats(0, 100)
)


@pytest.mark.slow
@examples(40)
@given(
    kind=st.sampled_from([None, *FAULTS]),
    names=st.lists(NAMES, min_size=2, max_size=4),
    costs=st.lists(COSTS, min_size=4, max_size=4),
)
def test_models_that_differ_in_name_and_cost_get_their_own_outcomes(kind, names, costs):
    files = FAULTS[kind](3) if kind else healthy(3)
    remembered = Recent()
    for name, fetched, digit in zip(names, costs, "0123", strict=False):
        one = snapshot(files, name, digit * 40, fetched)
        assert observed(remembered, one) == expected(one)


@pytest.mark.slow
@examples(25)  # the diagnosis of a changed config takes most of a second
@given(
    changes=st.dictionaries(
        st.sampled_from([*WRITERS, *TINY, "dtype", "tie_word_embeddings", "num_labels"]),
        st.sampled_from([0, 1, 2, 4, 8, True, None, "float16", "sweep/other"]),
        max_size=3,
    )
)
def test_models_with_other_configs_get_their_own_outcomes(changes):
    files = healthy(3)
    remembered = Recent()
    audited_with(remembered, snapshot(files))
    config = {**json.loads(files["config.json"]), **changes}
    other = snapshot({**files, "config.json": json.dumps(config).encode()}, "o/other")
    assert observed(remembered, other) == expected(other)


@pytest.mark.parametrize("name", WRITERS)
def test_models_whose_configs_have_other_writers_are_examined_once(name):
    files = healthy(3)
    config = json.loads(files["config.json"])
    remembered = Recent()
    first, other = (
        snapshot({**files, "config.json": json.dumps({**config, name: value}).encode()}, model)
        for model, value in (("o/n", "one"), ("o/other", "another"))
    )
    assert audited_with(remembered, first)[1]
    assert not audited_with(remembered, other)[1]


ROWS = 700_000  # of the word embedding: the model has 2.8 million parameters


def large(model):
    """A model whose name may well give its size."""
    config = config_bytes(vocab_size=ROWS, architectures=["BertModel"], dtype="float32")
    tensors = stored_by(expect("BertModel", vocab_size=ROWS))
    head = safetensors_bytes({one.name: ("F32", one.shape) for one in tensors}, data=False)
    one = snapshot({"config.json": config, "model.safetensors": head}, model)
    size = len(head) + sum(4 * tensor.elements for tensor in tensors)
    return replace(one, headers=(replace(one.headers[0], size=size),))


def test_models_whose_names_claim_the_same_true_size_are_examined_once():
    remembered = Recent()
    for number, name in enumerate(("o/of-3m", "p/tuned-3m")):
        one = large(name)
        assert audited_with(remembered, one)[1] is (number == 0)
        assert observed(remembered, one) == expected(one)
        assert f'"key":"{name}"' in expected(one)[0]


def test_models_whose_names_claim_a_wrong_size_get_their_own_findings():
    remembered = Recent()
    for name in ("o/plain", "o/of-7b", "p/tuned-7b"):
        one = large(name)
        assert observed(remembered, one) == expected(one)
        assert ("claimed-size" in expected(one)[0]) is ("7b" in name)


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
    "name": lambda one: replace(one, model="o/of-7b"),
    "card": lambda one: replace(
        one, published=(PublishedText(name="cardData.parameters", text="7B"),)
    ),
    "companions": lambda one: replace(one, companions=()),
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_a_model_that_differs_in_anything_else_gets_its_own_outcome(changed):
    remembered = Recent()
    audited_with(remembered, snapshot(healthy(3)))
    other = changed(snapshot(healthy(3), "o/other"))
    assert observed(remembered, other) == expected(other)


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
@examples(60)
@given(
    lists=st.lists(st.sets(OTHER_FILES, max_size=4), min_size=2, max_size=4),
    companions=st.sampled_from([None, ()]),
)
def test_models_with_other_companion_files_get_their_own_outcomes(lists, companions):
    remembered = Recent()
    for names in lists:
        one = replace(snapshot(healthy(3)), companions=companions)
        files = tuple(RepoFile(name=name, size=None) for name in sorted(names))
        one = replace(one, files=tuple(sorted((*one.files, *files), key=lambda file: file.name)))
        assert observed(remembered, one) == expected(one)


@pytest.mark.parametrize("name", ["README.md", "runs/a/events.out.tfevents.1"])
def test_models_that_differ_in_a_file_without_weights_are_examined_once(name):
    one = snapshot(healthy(3))
    remembered = Recent()
    audited_with(remembered, one)
    other = replace(one, model="o/other", files=(*one.files, RepoFile(name=name, size=9)))
    assert not audited_with(remembered, other)[1]


def test_models_that_differ_in_other_weights_are_examined_each():
    one = snapshot(healthy(3))
    remembered = Recent()
    audited_with(remembered, one)
    other = replace(one, model="o/other", files=(*one.files, RepoFile(name="tf_model.h5", size=9)))
    assert audited_with(remembered, other)[1]


def test_an_unaudited_outcome_is_not_remembered():
    files = healthy(3)
    config = {**json.loads(files["config.json"]), "architectures": ["Strange"], "model_type": "x"}
    odd = {**files, "config.json": json.dumps(config).encode()}
    remembered = Recent()
    for name in ("o/a", "o/b"):
        one = snapshot(odd, name)
        assert audited_with(remembered, one)[1]
        assert observed(remembered, one) == expected(one)


def test_outcomes_that_were_not_used_for_long_are_forgotten():
    remembered = Recent(3_000)
    for number in range(35):  # 7 vocabularies and 5 widths: all differ
        assert audited_with(remembered, snapshot(healthy(number), "o/first"))[1]
    assert not audited_with(remembered, snapshot(healthy(34), "o/other"))[1]
    assert audited_with(remembered, snapshot(healthy(0), "o/other"))[1]


def test_the_columns_are_those_of_the_json():
    outcome = examine(snapshot(FAULTS["missing"](3)), Options(requested="o/n"))
    record = recorded(outcome)
    value, _ = written(record.stored_outcome)
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

"""config-field, head-not-saved and their kin on a tiny BERT, as its closed form has it."""

import json
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support.checkpoints import TINY, expect, stored_by

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import Snapshot, Source, TextFile, WeightHeader
from auditor.containers.weight_formats import Table
from auditor.diagnosis.causes import config_field
from auditor.diagnosis.changes import with_values


def tiny(target="BertForMaskedLM", **values) -> Snapshot:
    tensors = tuple(sorted(stored_by(expect(target))))
    table = Table(file="model.safetensors", tensors=tensors)
    config = {**TINY, "architectures": [target], "dtype": "float32"}
    made = Snapshot(
        model="tiny",
        commit=None,
        source=Source.FOLDER,
        origin="",
        files=(),
        config=TextFile(name="config.json", content=json.dumps(config).encode()),
        headers=(WeightHeader(name="model.safetensors", size=None, known=table),),
    )
    return with_values(made, values)


def diagnosed(**values):
    target = values.pop("target", "BertForMaskedLM")
    report = examine(tiny(target, **values), Options(requested="tiny"))
    return [
        (one.cause, {key: (was, held) for key, was, held in one.fields}) for one in report.diagnosis
    ]


@pytest.mark.parametrize(
    ("key", "declared", "held"),
    [
        ("vocab_size", 13, 11),
        ("hidden_size", 6, 4),
        ("hidden_size", 5, 4),  # no model can be built of it: it is not a multiple of the heads
        ("intermediate_size", 80, 8),
        ("num_hidden_layers", 1, 2),
        ("num_hidden_layers", 7, 2),
        ("max_position_embeddings", 7, 6),
        ("type_vocab_size", 1, 2),
    ],
)
def test_a_key_is_solved_for(key, declared, held):
    assert diagnosed(**{key: declared}) == [("config-field", {key: (declared, held)})]


def test_two_keys_are_one_cause():
    fields = {"vocab_size": (13, 11), "num_hidden_layers": (3, 2)}
    [(cause, found)] = diagnosed(vocab_size=13, num_hidden_layers=3)
    assert (cause, found) == ("config-field", fields)


def test_labels_are_counted_by_their_names():
    labels = {str(number): "x" for number in range(5)}
    found = diagnosed(target="BertForSequenceClassification", id2label=labels)
    assert found == [("config-field", {"num_labels": (5, 2)})]


def test_a_sound_checkpoint_has_no_cause():
    assert diagnosed() == []


# --- as many layers as people have: files hold layer 10 before layer 9 --------------------------

LAYERS = 200  # a large model, of which there are few tries


def deep(layers, config_layers, names=()):
    """A BERT of small layers, or other names in its place, under a config of so many layers."""
    tensors = stored_by(expect("BertForMaskedLM", num_hidden_layers=layers))
    if names:
        tensors = [one._replace(name=name) for one, name in zip(tensors, names, strict=False)]
    table = Table(file="model.safetensors", tensors=tuple(sorted(tensors)))
    made = tiny(num_hidden_layers=config_layers)
    return replace(made, headers=(WeightHeader(name="model.safetensors", size=None, known=table),))


@given(st.integers(2, 40), st.integers(1, 40))
@example(12, 11)
@example(LAYERS, LAYERS - 1)
@example(LAYERS, LAYERS // 10)
@example(LAYERS, 2 * LAYERS)
def test_a_wrong_number_of_layers_is_named(layers, declared):
    assume(layers != declared)
    report = examine(deep(layers, declared), Options(requested="deep"))
    [found] = report.diagnosis
    assert found.cause == "config-field"
    assert found.fields == (("num_hidden_layers", declared, layers),)


def test_large_models_of_strange_names_are_asked_for_no_field(monkeypatch):
    def refuse(_):
        raise AssertionError("a field was looked for")

    monkeypatch.setattr(config_field, "search", refuse)
    names = [f"some.{at:x}.name" for at in range(5_000)]
    report = examine(deep(LAYERS, LAYERS, names), Options(requested="large"))
    assert report.verdict == "findings"
    assert report.diagnosis == ()

"""config-field, head-not-saved and their kin on a tiny BERT, as its closed form has it."""

import json

import pytest
from support.checkpoints import TINY, expect, stored_by

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import Snapshot, Source, TextFile, WeightHeader
from auditor.containers.weight_formats import Table
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

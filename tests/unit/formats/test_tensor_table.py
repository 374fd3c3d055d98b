"""The tables of tensors: what people are shown, and what a program reads."""

import csv
import io
import json

import pandas as pd
import pytest
from msgspec.structs import replace
from support.builders import safetensors_bytes
from support.outcomes.examples import HOSTILE, gated

import auditor
from auditor.cli.printing import require_format_of_tensors
from auditor.errors import UsageError
from auditor.formats import tensor_table
from auditor.reconciler.tensor_rows import TensorRow, TensorTable

CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 4,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
    "vocab_size": 10,
}
WORDS = "embeddings.word_embeddings.weight"
# As the modules of transformers' BertModel are defined, one after the other.
EMBEDDINGS = (
    WORDS,
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "embeddings.LayerNorm.weight",
    "embeddings.LayerNorm.bias",
)


def outcome(tmp_path, config=CONFIG, **tensors):
    (tmp_path / "config.json").write_text(json.dumps(config))
    if tensors:
        (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return auditor.audit(str(tmp_path))


def rows(found):
    return {row.name: row for row in found.tensors.rows()}


def table(found):
    columns = tensor_table.columns_of([found])
    lines = [tensor_table.csv_line(columns), *tensor_table.csv_lines(found, columns)]
    return "".join(lines)


def test_a_tensor_has_what_is_stored_and_what_was_expected(tmp_path):
    found = outcome(
        tmp_path,
        **{
            WORDS: ("F16", (12, 4)),
            "embeddings.LayerNorm.gamma": ("F32", (4,)),
            "embeddings.extra": ("F32", ()),
            "else.weight": ("F32", (3,)),
        },
    )
    listed = rows(found)
    words = listed[WORDS]
    assert (words.dtype, words.shape, words.expected_shape) == ("F16", (12, 4), (10, 4))
    assert (words.status, words.elements, words.parameters) == ("mismatched", 48, 48)
    assert listed["embeddings.LayerNorm.gamma"].expected_name == "embeddings.LayerNorm.weight"
    assert listed["pooler.dense.weight"][1:] == (
        *(None, None, None, None, 0, (4, 4), "missing", None),
    )
    names = list(listed)
    assert names[:4] == [WORDS, *EMBEDDINGS[1:3], "embeddings.LayerNorm.gamma"]
    assert names[4:6] == ["embeddings.extra", "embeddings.LayerNorm.bias"]
    assert (names[-1], listed[names[-1]].status) == ("else.weight", "unexpected")
    printed = list(tensor_table.tensor_lines(found))
    [line] = [line.split() for line in printed if line.startswith(WORDS)]
    assert line[1:] == [
        "F16",
        "12",
        "x",
        "4",
        "10",
        "x",
        "4",
        "48",
        "mismatched",
        "model.safetensors",
    ]
    assert any(line.endswith("  as embeddings.LayerNorm.weight\n") for line in printed)
    assert printed[-1].split() == ["4", "tensors", "stored,", "21", "not", "56"]


def test_a_config_alone_is_explained(tmp_path):
    found = outcome(tmp_path)
    assert tuple(rows(found))[:5] == EMBEDDINGS
    assert {row.file for row in found.tensors.rows()} == {None}
    assert rows(found)[WORDS].expected_shape == (10, 4)


def test_without_an_expectation_the_stored_tensors_are_reported(tmp_path):
    config = {"architectures": ["Nobody"], "model_type": "no-such-type"}
    found = outcome(tmp_path, config, **{"b.10": ("F32", (2,)), "b.9": ("I64", (3, 1))})
    assert found.verdict == "unaudited"
    first, second = found.tensors.rows()
    assert first[:7] == ("b.9", "model.safetensors", "I64", (3, 1), 3, 0, None)
    assert (second.name, second.parameters, second.status) == ("b.10", 2, "unchecked")


def test_a_program_reads_numbers_and_shapes(tmp_path):
    found = outcome(tmp_path, **{WORDS: ("F16", (10, 4)), "one": ("F32", ())})
    frame = pd.read_csv(io.StringIO(table(found)))
    assert tuple(frame.columns) == tensor_table.TENSORS
    assert frame["parameters"].dtype == "int64"
    shapes = dict(zip(frame["name"], frame["shape"], strict=True))
    assert (json.loads(shapes[WORDS]), json.loads(shapes["one"])) == ([10, 4], [])
    assert frame["expected_shape"].map(json.loads, na_action="ignore")[0] == [10, 4]
    assert frame["status"].value_counts()["equal"] == 1


def test_numbers_that_were_read_stand_beside_it_and_are_empty_elsewhere(tmp_path):
    outcome(tmp_path, **{WORDS: ("F32", (10, 4))})
    found = auditor.audit(str(tmp_path), values=True, statistics=True)
    frame = pd.read_csv(io.StringIO(table(found))).set_index("name")
    assert tuple(frame.columns) == (
        *(one for one in tensor_table.TENSORS if one != "name"),
        *tensor_table.NUMBERS,
    )
    assert (frame["numbers"][WORDS], frame["zeros"][WORDS]) == (40, 40)
    assert frame["nonzero"][WORDS] == "no"
    assert frame["numbers"].notna().sum() == 1
    made = found.tensors_frame().set_index("name")
    assert (len(made), made["numbers"][WORDS]) == (len(frame), 40)
    assert made["numbers"].notna().sum() == 1


def test_untrusted_names_are_data():
    rows = [
        TensorRow(name, name, name, (1,) * 20, 1, 1, None, "unexpected", name) for name in HOSTILE
    ]
    found = replace(gated(), tensors=TensorTable(lambda: iter(rows)))
    read = [*csv.DictReader(io.StringIO(table(found), newline=""), strict=True)]
    assert len(read) == len(HOSTILE)
    for one in read:
        assert one["name"].isprintable()
        assert not one["name"].lstrip(" ").startswith(("=", "+", "-", "@"))
    printed = list(tensor_table.tensor_lines(found))
    assert len(printed) == 3 + len(HOSTILE)  # an empty line, the heading, the sum
    assert all(line.rstrip("\n").isprintable() for line in printed)
    assert "(20 dimensions)" in printed[2]


def test_what_has_no_tensors_has_no_table():
    assert list(tensor_table.tensor_lines(gated())) == []
    assert table(gated()).count("\n") == 1


def test_other_formats_have_no_table_of_tensors():
    with pytest.raises(UsageError, match="--format terminal or csv"):
        require_format_of_tensors("json")

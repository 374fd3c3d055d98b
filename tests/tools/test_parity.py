"""The load report beside from_pretrained's, for a few model types; `make parity` does them all."""

import json
from pathlib import Path

import pytest
from parity_cases.words import Raised, Silent, Word, compared, finer
from support.bert_configs import config_of

from auditor.analytic import catalogue

SHARE = [
    # An encoder, a decoder and two towers with buffers of old, fused experts, a model of models,
    # and one of pictures that version 5 names otherwise in memory.
    *(("closed", (each,)) for each in ("mpnet", "gpt2", "pegasus", "mixtral", "qwen2_5_vl")),
    ("closed", ("segformer",)),
    # Without a closed form: a tower under the names of three versions, an infinity in the config,
    # a fused projection that is cut in three, and experts of two kinds. Together, for the oracle's
    # process starts once for them.
    ("oracle", ("internvl", "bamba", "radio", "flex_olmo")),
    ("generated", ("deberta", "vilt")),
]

CLASSES = 3  # of each type: the model, one with its head, and one with another


def _joined(part: str | tuple[str, ...]) -> str:
    return part if isinstance(part, str) else "-".join(part)


@pytest.mark.oracle
@pytest.mark.parametrize(("kind", "model_types"), SHARE, ids=_joined)
def test_every_load_report_is_that_of_from_pretrained(
    kind: str, model_types: tuple[str, ...], tmp_path: Path
) -> None:
    from parity_cases.loads import IGNORED  # noqa: PLC0415 - seconds, which these alone pay
    from parity_cases.rows import Work, rows_of  # noqa: PLC0415 - likewise

    rows, left_out = rows_of(Work(kind, model_types, 0, tmp_path, classes=CLASSES))
    assert left_out == []
    assert len(rows) > 5 * len(model_types)
    assert [row for row in rows if row.same == "no"] == []
    # What the library loads without a word is no alarm, but for what is tied and stored twice, and
    # for names made up of what it ignores: they belong to no class, and are dropped.
    alarms = {row.alarms for row in rows if row.case != IGNORED}
    assert alarms <= {"", "duplicate"}


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", ["clip", "qwen2_vl", "qwen3_5"])
def test_a_model_loads_into_the_classes_of_its_parts_as_reported(model_type, tmp_path):
    """The config class's own from_pretrained finds the part, and the model's loads zeros."""
    transformers = pytest.importorskip("transformers")
    from parity_cases import configs, folders, library, loads, spoiling, words  # noqa: PLC0415

    values = {**configs.small_config(model_type), "model_type": model_type}
    name = next(
        each
        for each in catalogue.siblings(model_type)
        if each == "CLIPModel" or each.endswith("ForConditionalGeneration")
    )
    model = library.config_from(getattr(transformers, name), dict(values))
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    checkpoint = spoiling.written(catalogue.expect(config_of(**saved), name))
    parts = {part.get("model_type") for part in saved.values() if isinstance(part, dict)} - {None}
    targets = [name for part in parts for name in catalogue.siblings(part)]
    assert targets
    load = loads.Load("closed form", model_type, name, name, "self", saved, checkpoint, 0)
    folder = folders.write(load, tmp_path / "folder")
    for target in targets:
        [outcome] = folders.audited([(folder, target)], tmp_path)
        theirs = library.theirs(folder, target, checkpoint, load.elements)
        assert words.ours(outcome) == theirs, target


# --- how the two are compared -----------------------------------------------------------------

NOTHING = Word(frozenset(), frozenset(), frozenset())
LACKS = NOTHING._replace(missing=frozenset({"experts.down_proj"}))
MISFITS = NOTHING._replace(mismatched=frozenset({("experts.down_proj", ((1, 2), (3, 2)))}))
RAISED = Raised("ValueError: sizes differ")


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        (NOTHING, NOTHING, "yes"),
        (LACKS, LACKS, "yes"),
        (LACKS, NOTHING, "no"),
        (NOTHING, LACKS, "no"),
        (LACKS, MISFITS, "no"),
        (LACKS, LACKS._replace(unexpected=frozenset({"x"})), "no"),
        (Raised("one has the shape (1,), another (2,)"), RAISED, "yes"),
        (LACKS, RAISED, "no"),
        (RAISED, NOTHING, "no"),
        (Silent("no load report: gated"), NOTHING, "silent"),
    ],
)
def test_two_reports_are_equal_or_they_are_not(
    ours: Word | Raised | Silent, theirs: Word | Raised, same: str
) -> None:
    assert compared(ours, theirs).same == same


@pytest.mark.parametrize(
    ("report", "names", "expected"),
    [
        ({"missing_keys": ["a"], "raises": None}, ["a"], False),
        ({"missing_keys": [], "raises": None}, ["experts"], True),  # the report has a mismatch
        ({"missing_keys": ["experts"], "raises": "sizes differ"}, ["experts"], True),
        (None, ["a"], False),
    ],
)
def test_findings_are_finer_where_they_name_a_part_of_what_is_reported(report, names, expected):
    finding = {"kind": "missing", "in_memory": [names], "silent": [False]}
    assert finer({"load_report": report, "findings": [finding]}) is expected

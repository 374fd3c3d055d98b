"""`--base`: files that are the base's byte for byte, and tensors that a fine-tune left alone."""

import json
from importlib.resources import files as resources

import jsonschema
import numpy as np
import pytest
from support.value_causes import causes_of
from support.value_files import write_numbers

import auditor
from auditor.checkpoint.snapshot import RepoFile
from auditor.errors import Reason
from auditor.values.base import files_of_base

WEIGHTS, CONFIG = "model.safetensors", "config.json"
EQUAL = [("equals-base", "warning")]
LAYERS = 3


def tensors(seed=0, size=64):
    rng = np.random.default_rng(seed)
    return {
        f"model.layers.{layer}.{part}.weight": rng.standard_normal((size, size), np.float32)
        for layer in range(LAYERS)
        for part in ("q_proj", "v_proj", "mlp.up_proj")
    }


def tuned(of):
    """Only the queries were trained."""
    return {key: one + 1 if "q_proj" in key else one for key, one in of.items()}


@pytest.fixture
def add(at_hub, tmp_path):
    def made(model, of, **choices):
        path = write_numbers(tmp_path / "hub" / model / WEIGHTS, of)
        at_hub.add(model, {CONFIG: "{}", WEIGHTS: path}, **choices)
        return model

    return made


def folder(place, of):
    write_numbers(place / WEIGHTS, of)
    (place / CONFIG).write_text("{}")
    return str(place)


def test_a_model_with_the_bytes_of_its_base_is_named_without_a_weight_read(at_hub, add):
    add("org/base", tensors())
    add("org/merged", tensors())
    add("org/tuned", tuned(tensors()))
    at_hub.reset_log()
    outcome = auditor.audit("org/merged", base="org/base")
    assert causes_of(outcome) == EQUAL
    assert [one.cause for one in outcome.diagnosis if one.level == "values"] == ["equals-base"]
    assert sum("/api/models/org/base" in one.path for one in at_hub.log) == 1
    assert not any("/org/base/resolve" in one.path for one in at_hub.log)
    assert outcome.fetched.requests == len(at_hub.log)
    outcome = auditor.audit("org/tuned", base="org/base")
    assert causes_of(outcome) == []
    assert any("no weight file is equal to one of 'org/base'" in one for one in outcome.notes)


def test_the_base_that_the_card_names_is_requested_with_values(add):
    add("org/base", tensors())
    add("org/merged", tensors(), card={"base_model": ["org/base"]})
    assert causes_of(auditor.audit("org/merged")) == []
    plain = auditor.audit("org/merged").fetched.requests
    outcome = auditor.audit("org/merged", values=True)
    assert causes_of(outcome) == EQUAL
    assert plain < outcome.fetched.requests <= plain + 8


def test_a_card_that_names_no_base_that_exists_ends_nothing(add):
    bases = ("org/gone", "../up", ["org/a", "org/b"], {"x": 1}, "org/m4", None)
    for number, base in enumerate(bases):
        add(f"org/m{number}", tensors(), card={"base_model": base} if base else {})
        outcome = auditor.audit(f"org/m{number}", values=True)
        assert causes_of(outcome) == []
        is_named = any("which the card names" in one for one in outcome.unchecked)
        assert is_named == (base == "org/gone")


def test_a_base_that_the_user_names_and_that_is_not_there_is_an_outcome(add):
    outcome = auditor.audit(add("org/merged", tensors()), base="org/gone")
    assert isinstance(outcome, auditor.Unaudited)
    assert outcome.reason is Reason.NOT_FOUND


def test_a_local_folder_is_compared_by_the_digests_of_its_files(tmp_path):
    copy, other = folder(tmp_path / "copy", tensors()), folder(tmp_path / "o", tuned(tensors()))
    assert causes_of(auditor.audit(copy, base=folder(tmp_path / "base", tensors()))) == EQUAL
    assert causes_of(auditor.audit(other, base=copy)) == []


def test_what_a_fine_tune_touched_is_counted_by_module(tmp_path):
    base = folder(tmp_path / "base", tensors())
    outcome = auditor.audit(folder(tmp_path / "tuned", tuned(tensors())), base=base, values=True)
    found = outcome.values.base
    assert (found.unchanged, found.changed, found.uncompared) == (2 * LAYERS, LAYERS, 0)
    assert {tuple(one) for one in found.modules} == {
        ("q_proj", 0, LAYERS),
        ("v_proj", LAYERS, 0),
        ("mlp.up_proj", LAYERS, 0),
    }
    assert any("6 of 9 tensors are unchanged; changed: q_proj 3 of 3" in n for n in outcome.notes)
    schema = json.loads(resources("auditor.formats").joinpath("report.schema.json").read_text())
    jsonschema.validate(json.loads(outcome.to_json()), schema)


def test_the_same_tensors_in_other_files_are_the_base_too(tmp_path):
    of = tensors()
    base = folder(tmp_path / "base", of)
    turned = folder(tmp_path / "merged", dict(reversed(of.items())))
    assert causes_of(auditor.audit(turned, base=base)) == []
    assert causes_of(auditor.audit(turned, base=base, values=True)) == EQUAL
    less = folder(tmp_path / "less", dict(list(of.items())[:-1]))
    assert causes_of(auditor.audit(less, base=base, values=True)) == []


@pytest.mark.parametrize("local", [False, True])
def test_samples_are_compared_at_the_same_places_wherever_the_tensors_lie(add, tmp_path, local):
    of = tensors(size=512)
    add("org/base", dict(reversed(of.items())))
    model = folder(tmp_path / "t", tuned(of)) if local else add("org/tuned", tuned(of))
    outcome = auditor.audit(model, base="org/base", values=True)
    found = outcome.values.base
    assert found.commit is not None
    assert 0 not in {found.changed, found.unchanged, found.uncompared}
    assert {one.module for one in found.modules if one.changed} == {"q_proj"}
    assert all(one.unchanged == 0 for one in found.modules if one.module == "q_proj")
    assert any("as far as they were sampled" in one for one in outcome.notes)
    assert causes_of(outcome) == []


def test_other_names_and_shapes_are_not_compared(tmp_path):
    base = folder(tmp_path / "base", {"x.weight": np.ones((4, 4), np.float32)})
    other = folder(tmp_path / "o", {"x.weight": np.ones((2, 8), np.float32)})
    outcome = auditor.audit(other, base=base, values=True)
    assert outcome.values.base.uncompared == 1
    assert any("no tensor, because names, shapes or dtypes differ" in one for one in outcome.notes)


def test_files_of_the_same_bytes_are_named(at_hub, tmp_path):
    path = write_numbers(tmp_path / WEIGHTS, tensors())
    at_hub.add("org/twice", {CONFIG: "{}", WEIGHTS: path, f"copy/{WEIGHTS}": path})
    outcome = auditor.audit("org/twice", values=True)
    assert any("have the same bytes (sha256)" in one for one in outcome.notes)


def file(name, size, digest=None):
    return RepoFile(name=name, size=size, sha256=digest and digest * 64)


BASE = (file("a.safetensors", 10, "a"), file("b.safetensors", 20, "b"), file("c.safetensors", 30))


FILES = [
    (file("x.safetensors", 10, "a"), "equal"),
    (file("x.safetensors", None, "a"), "equal"),
    (file("x.safetensors", 10, "c"), "other"),
    (file("x.safetensors", 11, "d"), "other"),
    (file("x.safetensors", 10), "unknown"),
    (file("x.safetensors", 30, "d"), "unknown"),
]


def test_a_file_is_the_bases_only_by_its_digest():
    for one, place in FILES:
        found = files_of_base(
            [one], BASE, digest=lambda file: file.sha256, digest_of_base=lambda file: file.sha256
        )
        assert found._asdict() == {"equal": (), "other": (), "unknown": ()} | {place: (one.name,)}

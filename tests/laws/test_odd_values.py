"""Every value of a checkpoint's JSON may have any type: each command answers, and none crashes.

`make laws` tries every place of every folder with every value, make test a few of them.
"""

import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import each_night, examples
from support.odd_values import ANSWERS, FOLDERS, ODD, answer, places, swapped, written

import auditor
from auditor.audit import expected

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
VALUES = st.sampled_from(ODD) | st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@pytest.fixture(autouse=True)
def _no_oracle(monkeypatch):
    """What transformers makes of a value is its own affair, and takes a second."""
    monkeypatch.setattr(expected, "_oracle", lambda *_: None)


@cache
def folder(name):
    return FOLDERS[name]()


@st.composite
def odd_folders(draw):
    """The files of a folder with one or two values changed, and those of the sound one."""
    sound = folder(draw(st.sampled_from(sorted(FOLDERS))))
    files = sound
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(sorted(places(files), key=repr)))
        files = swapped(files, place, draw(VALUES))
    return files, sound


@pytest.mark.parametrize("command", ANSWERS)
@examples(60)
@given(folders=odd_folders())
def test_a_value_of_any_type_is_answered(command, folders, tmp_path_factory):
    odd, sound = (
        written(tmp_path_factory.mktemp(f"{at}") / "model", files)
        for at, files in enumerate(folders)
    )
    answer(command, odd, sound)


@each_night
@pytest.mark.parametrize("name", FOLDERS)
def test_every_place_of_a_folder_takes_every_value(name, tmp_path):
    sound, rng = folder(name), random.Random(name)  # noqa: S311 - the same commands each night
    whole = written(tmp_path / "sound" / "model", sound)
    packed = name.startswith("packed by")  # the rest of its files are those of the decoder
    for place in places(sound):
        if packed and place[1][:1] != ("quantization_config",):
            continue
        for at, value in enumerate(ODD):
            odd = written(tmp_path / "odd" / "model", swapped(sound, place, value))
            answer(rng.choice([*ANSWERS]) if at % 4 else "audit", odd, whole)


@pytest.mark.parametrize("value", [["a"], [["a"]], {"a": 1}, "word", 10**30], ids=repr)
def test_an_odd_value_of_a_key_that_shapes_nothing_leaves_the_verdict(value, tmp_path):
    sound = FOLDERS["family LlamaForCausalLM"]()
    odd = swapped(sound, ("config.json", ("task_specific_params",)), value)
    verdicts = [
        auditor.audit(written(tmp_path / name / "model", files)).verdict
        for name, files in (("sound", sound), ("odd", odd))
    ]
    assert verdicts == ["clean", "clean"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("tie_word_embeddings", "word", "tie_word_embeddings"),
        ("layer_types", [["a"]], "layer_types"),
        ("hidden_size", ["a"], "hidden_size"),
        ("model_type", ["a"], "model_type"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(key, value, says, tmp_path):
    files = swapped(FOLDERS["family LlamaForCausalLM"](), ("config.json", (key,)), value)
    outcome = auditor.audit(written(tmp_path / "model", files))
    assert any(says in one.reason for one in outcome.findings if one.kind == "bad-config")

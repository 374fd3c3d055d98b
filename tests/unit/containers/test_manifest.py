"""Manifests: what model_index.json and modules.json say, and what they may not say."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.containers.manifest import (
    MAX_COMPONENTS,
    MODULES,
    PIPELINE,
    ManifestEntry,
    parse_manifest,
)
from auditor.errors import CheckpointError

WORDS = st.from_regex(r"[A-Za-z][\w.]{0,8}", fullmatch=True)
FOLDERS = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


def module(path: str, kind: str) -> dict[str, object]:
    return {"idx": 0, "name": "0", "path": path, "type": kind}


@given(
    st.dictionaries(FOLDERS, st.tuples(WORDS, WORDS), max_size=6),
    st.sampled_from(["P", ["custom_pipeline", "P"]]),
)
def test_every_pair_of_library_and_class_is_a_component(components, target):
    content = json.dumps({"_class_name": target, **components}).encode()
    manifest = parse_manifest(PIPELINE, content)
    assert manifest.target == "P"
    expected = tuple(ManifestEntry(folder, *pair) for folder, pair in sorted(components.items()))
    assert manifest.entries == expected


@given(st.dictionaries(FOLDERS | st.just(""), st.tuples(FOLDERS, FOLDERS), max_size=6))
def test_every_module_is_a_component_whatever_their_order(modules):
    listed = [module(path, f"{one}.models.{other}") for path, (one, other) in modules.items()]
    expected = tuple(ManifestEntry(path, *pair) for path, pair in sorted(modules.items()))
    for order in (listed, listed[::-1]):
        assert parse_manifest(MODULES, json.dumps(order).encode()).entries == expected


@given(st.sampled_from([PIPELINE, MODULES]), JSON.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_an_error_in_one_line_or_names_few_components(file, content):
    said, entries = "", ()
    try:
        entries = parse_manifest(file, content).entries
    except CheckpointError as error:
        said = str(error)
    assert bool(said) + bool(entries) <= 1
    assert "\n" not in said
    assert len(entries) <= MAX_COMPONENTS


def test_a_pair_of_strings_is_a_component_and_an_option_is_not(subtests):
    for value, component in [
        (["diffusers", "X"], True),
        ([None, None], False),
        ("a string", False),
        ([0.5, 0.5], False),  # an option of two numbers
        ({"a": 1}, False),
    ]:
        with subtests.test(value=value, component=component):
            content = json.dumps({"vae": value}).encode()
            assert bool(parse_manifest(PIPELINE, content).entries) is component


def test_half_a_pair_is_an_error(subtests):
    for value in [["diffusers", None], [[], "X"]]:
        with (
            subtests.test(value=value),
            pytest.raises(CheckpointError, match=r"'vae' is .*expected \[library, class\]"),
        ):
            parse_manifest(PIPELINE, json.dumps({"vae": value}).encode())


def test_the_type_of_a_module_is_its_library_and_its_class():
    kind = "sentence_transformers.base.modules.dense.Dense"
    [entry] = parse_manifest(MODULES, json.dumps([module("2_Dense/", kind)]).encode()).entries
    assert entry == ManifestEntry("2_Dense", "sentence_transformers", "Dense")


def test_64_components_are_the_most():
    entries = {f"c{number}": ["a", "b"] for number in range(MAX_COMPONENTS)}
    assert len(parse_manifest(PIPELINE, json.dumps(entries).encode()).entries) == MAX_COMPONENTS
    content = json.dumps({**entries, "more": ["a", "b"]}).encode()
    with pytest.raises(CheckpointError, match="names 65 components, expected at most 64"):
        parse_manifest(PIPELINE, content)

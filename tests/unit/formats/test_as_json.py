"""The JSON of outcomes against its schema, and the schema against the classes."""

import json
import keyword
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace
from report_schema import schema_text
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import EXAMPLES, HOSTILE, hostile

from auditor.findings import FINDING_KINDS, kind_of
from auditor.formats.as_json import render, stored_text
from auditor.names.folding import expand

SCHEMA = json.loads((files("auditor.formats") / "report.schema.json").read_bytes())
VALIDATOR = Draft202012Validator(SCHEMA)


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


def named(node):
    """Every key that the schema, or a schema within it, gives a name to."""
    if isinstance(node, dict):
        yield from node.get("properties", ())
    for child in node.values() if isinstance(node, dict) else node if type(node) is list else ():
        yield from named(child)


def test_no_key_is_a_keyword_of_python():
    keys = {*named(SCHEMA)}
    assert {"schema", "by", "load_report", "mismatched_keys", "tied_to", "hidden"} <= keys
    assert not keys & {*keyword.kwlist}
    assert all(map(str.isidentifier, keys))


def test_every_output_is_valid_and_one_line_of_ascii():
    for make in EXAMPLES.values():
        text = render(make())
        assert text.isascii()
        assert len(text.splitlines()) == 1
        VALIDATOR.validate(json.loads(text))


@pytest.mark.slow
def test_the_schema_has_every_key_and_no_other(subtests):
    """Strict at every level: an object with one key more or one less is refused."""
    for name in ["every-kind", "pipeline", "diagnosed"]:
        with subtests.test(name=name):
            valid = first_of_each_kind(json.loads(render(EXAMPLES[name]())))
            VALIDATOR.validate(valid)
            for path, found in objects_of(valid):
                # These objects have dtypes, config keys or engines as keys.
                if path[-1:] in {("by_dtype",), ("fields",), ("engines",)}:
                    continue
                for broken in ({**found, "surplus": 1}, dict(list(found.items())[1:])):
                    assert not VALIDATOR.is_valid(replaced(valid, path, broken)), path


def first_of_each_kind(value):
    """A JSON value whose lists have the first of their objects, or of those of each kind."""
    if isinstance(value, dict):
        return {key: first_of_each_kind(inner) for key, inner in value.items()}
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return value
    kinds = {one.get("kind"): one for one in reversed(value)}
    return [first_of_each_kind(one) for one in kinds.values()]


def objects_of(value, path=()):
    """Every object of a JSON value, with its path."""
    if isinstance(value, dict):
        yield path, value
    elif not isinstance(value, list):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from objects_of(inner, (*path, key))


def replaced(value, path, new):
    """The value with another one at the path; a list on the path has no other item."""
    if not path:
        return new
    inner = replaced(value[path[0]], path[1:], new)
    return {**value, path[0]: inner} if isinstance(value, dict) else [inner]


def test_the_schema_is_generated_from_the_structs():
    assert schema_text() == (files("auditor.formats") / "report.schema.json").read_text()


def test_the_example_of_every_kind_has_every_kind():
    assert {kind_of(finding) for finding in every_kind().findings} == {*FINDING_KINDS}


CONTRACT = {
    "outcome": "schema requested model commit source target model_type expected observed modules "
    "findings residual verdict reason fetched",
    "expected": "by parameters formula",
    "observed": "files bytes tensors elements parameters",
    "module": "prefix depth tensors elements parameters expected difference formula status",
    "finding": "kind severity names folded count parameters reason",
}


def test_the_keys_come_in_the_order_of_the_contract_with_additions_last():
    outcome = json.loads(render(bert_base_chinese()))
    objects = {**outcome, "outcome": outcome}
    objects |= {"module": outcome["modules"][0], "finding": outcome["findings"][0]}
    for part, keys in CONTRACT.items():
        assert list(objects[part])[: len(keys.split())] == keys.split()


def test_folded_names_expand_to_the_listed_names():
    for make in EXAMPLES.values():
        for finding in json.loads(render(make()))["findings"]:
            expanded = [each for pattern in finding["folded"] for each in expand(pattern)]
            assert sorted(expanded) == sorted(finding["names"])
            assert finding["count"] == len(finding["names"])


def test_untrusted_names_are_read_back_unchanged():
    [finding] = json.loads(render(hostile()))["findings"]
    assert finding["names"] == list(HOSTILE)


def test_what_is_stored_is_the_object_that_is_printed(subtests):
    for text in ["o/name", "o/\ud800"]:
        with subtests.test(text=text):
            for make in EXAMPLES.values():
                outcome = replace(make(), requested=text)
                assert json.loads(stored_text(outcome)) == json.loads(render(outcome))

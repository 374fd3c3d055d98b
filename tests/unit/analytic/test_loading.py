"""Renames of loading, against those of the library that they are facts of."""

from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from auditor.analytic import catalogue
from auditor.analytic.families import BY_DATA
from auditor.analytic.family import loading_facts
from auditor.analytic.loading import (
    LEGACY,
    ChangedName,
    Rule,
    forms_with_prefix,
    renamed_by,
    rewritten_name,
    starts_of_rule,
)

LAYERS = Rule((r"^encoder\.layer\.(\d+)\.",), (r"layers.\1.",), prefixes=("vit.", ""))
EXPERTS = Rule(("experts.*.gate.weight", "experts.*.up.weight"), ("experts.gate_up",))
MOVED = Rule(("norm0", "norm1"), ("norm1", "norm2"), paired=True)
SHIFTED = Rule((r"queries\.(\d+)",), (r"layers.\1.query",), offset=1)


def test_a_rule_matches_a_name_below_its_prefixes(subtests):
    for rule, name, found in [
        (LAYERS, "encoder.layer.3.bias", ("layers.3.bias", 0)),
        (LAYERS, "vit.encoder.layer.3.bias", ("vit.layers.3.bias", 0)),  # below either head
        (LAYERS, "x.encoder.layer.3.bias", None),
        (LAYERS, "vit.vit.encoder.layer.3.bias", None),
        (EXPERTS, "a.experts.11.up.weight", ("a.experts.gate_up", 1)),
        (EXPERTS, "a.experts.11.up.weight_scale", None),  # a name's part ends where it ends
        (MOVED, "blocks.0.norm0.bias", ("blocks.0.norm1.bias", 0)),
        (MOVED, "blocks.0.norm1.bias", ("blocks.0.norm2.bias", 1)),
        (SHIFTED, "queries.9", ("layers.10.query", 0)),
        (LAYERS, "encoder.layer.3." + "x" * 300, None),  # hostile, and not looked at
    ]:
        with subtests.test(rule=rule, name=name, found=found):
            assert rewritten_name(rule, name) == (found and (*found, rule))


def test_each_rule_changes_what_the_rules_before_it_made():
    first, second = Rule(("head",), ("model.heads",)), Rule((r"^model\.heads\.",), ("h.",))
    assert renamed_by((first, second), ("head.bias", "model.heads.1", "norm")) == {
        "head.bias": ChangedName("h.bias", (first, second)),
        "model.heads.1": ChangedName("h.1", (second,)),
    }
    assert renamed_by((second, first), ("head.bias",)) == {
        "head.bias": ChangedName("model.heads.bias", (first,))
    }


def test_a_rule_without_a_literal_part_may_match_any_name():
    anything = Rule((r"^(layers\.|norm\.)",), ("m.",))
    assert renamed_by((anything,), ("norm.bias", "x")) == {
        "norm.bias": ChangedName("m.bias", (anything,))
    }


def test_a_paired_rule_may_wait_for_its_first_source(subtests):
    for in_turn in [False, True]:
        with subtests.test(in_turn=in_turn):
            names = ("0.norm1.bias", "1.norm0.bias", "2.norm1.bias")
            found = renamed_by((MOVED,), names, in_turn=in_turn)
            late = {"1.norm0.bias": ChangedName("1.norm1.bias", (MOVED,))} | {
                "2.norm1.bias": ChangedName("2.norm2.bias", (MOVED,))
            }
            assert found == (
                late if in_turn else {names[0]: ChangedName("0.norm2.bias", (MOVED,))} | late
            )


@cache
def transforms() -> list[Any]:
    """Every rename and conversion that the library registers, each once."""
    from transformers import conversion_mapping as theirs  # noqa: PLC0415 - seconds

    registry = theirs._build_checkpoint_conversion_mapping()  # noqa: SLF001 - all of them
    found = {(type(one), repr(one)): one for rules in registry.values() for one in rules}
    return list(found.values())


class Config:
    """A config as the operations of a conversion ask for sizes."""

    num_attention_heads = 2
    split_ngram_parts = 2
    unpadded_vocab_size = 2

    def get_text_config(self) -> "Config":
        return self


@pytest.mark.oracle
@examples(400)
@given(st.data())
def test_a_rule_of_the_library_makes_of_a_name_what_the_library_does(data):
    from auditor.oracle.loading_rules import rule_of  # noqa: PLC0415 - as above

    transform = deepcopy(data.draw(st.sampled_from(transforms())))
    scope = data.draw(st.sampled_from([None, "", "b"]))
    if scope is not None:
        transform.scope_prefix, transform.base_model_prefix = scope, "a"
    rule = rule_of(transform, Config())
    sources = rule.sources if rule.halves else transform.source_patterns
    source = data.draw(st.sampled_from(sources)).replace("*.", r".*\.")
    text = data.draw(st.from_regex(source, alphabet=st.characters(codec="ascii")))
    below = data.draw(st.sampled_from(["", "a.", "a.b.", "b.", "model."]))
    name = below + text + data.draw(st.sampled_from(["", ".bias", "_scale", "2"]))
    found = rewritten_name(rule, name)
    ours = (name, None) if found is None else (found.name, transform.source_patterns[found.source])
    assert len(name) > 256 or ours == _theirs(transform, name)


def _theirs(transform: Any, name: str) -> tuple[str, str | None]:
    """What the library makes of it; a paired rule as if its first source had been seen."""
    if hasattr(transform, "_active"):
        transform._active = True  # noqa: SLF001 - it depends on the names before
    found: tuple[str, str | None] = transform.rename_source_key(name)
    return found


# --- the rules, against the library's own ----------------------------------------------------


def _keys() -> tuple[str, ...]:
    """The model types and class names for which the library has rules."""
    types = {*catalogue.model_types()} - BY_DATA - {"transformer-2017"}
    return tuple(
        dict.fromkeys(key for each in sorted(types) for key in (each, *catalogue.siblings(each)))
    )


@pytest.mark.oracle
def test_the_rules_are_those_of_the_library() -> None:
    """Law 9 checks that they are combined as in the library."""
    from transformers import conversion_mapping as library  # noqa: PLC0415 - the oracle's

    from auditor.oracle.loading_rules import rule_of  # noqa: PLC0415 - the oracle's

    library_rules = {
        key: _sorted([rule_of(each, None) for each in mapping])
        for key in _keys()
        if (mapping := library.get_checkpoint_conversion_mapping(key))
    }
    our_rules = {
        key: _sorted(
            [one if isinstance(one, Rule) else Rule((one[0],), (one[1],)) for one in rules]
        )
        for key in _keys()
        if (rules := loading_facts(key).rules)
    }
    assert our_rules == library_rules
    legacy = library.get_checkpoint_conversion_mapping("legacy")
    assert tuple(rule_of(each, None) for each in legacy) == LEGACY


def _sorted(rules: list[Rule]) -> list[Rule]:
    """Put renames first, as they are applied, and leave each kind in its order."""
    return sorted(rules, key=lambda rule: bool(rule.operations))


# --- the base model's prefix ----------------------------------------------------------------------


PARTS = st.sampled_from(("bert", "bert_pooler", "encoder", "weight", "b"))
NAMES = st.lists(PARTS, min_size=2, max_size=4).map(".".join)
PREFIXES = st.sampled_from(("bert", "model", "b"))


@given(NAMES, PREFIXES)
def test_each_form_names_the_tensor_with_the_prefix_without_it_or_as_it_is(name, prefix):
    longer = f"{prefix}.{name}"
    forms = forms_with_prefix((name, longer), prefix)[name]
    assert forms[-2:] == (longer, name)
    assert all(name in {form, f"{prefix}{name[len(prefix)]}{form}"} for form in forms[:-2])
    assert forms_with_prefix((name, longer), prefix)[longer][0] == name
    assert forms_with_prefix((name,), "") == {name: (name,)}


@pytest.mark.oracle
@given(NAMES, PREFIXES, st.sets(NAMES))
def test_the_library_loads_a_name_into_the_first_form_that_the_model_has(name, prefix, names):
    from transformers.core_model_loading import rename_source_key  # noqa: PLC0415 - takes seconds

    forms = forms_with_prefix((name,), prefix)[name]
    in_model = names | {form for at, form in enumerate(forms) if (len(name) + at) % 2}
    expected, _ = rename_source_key(name, [], [], prefix, dict.fromkeys(in_model, 1))
    assert next((form for form in forms if form in in_model), name) == expected


def test_a_rule_of_a_model_inside_the_class_begins_with_its_path(subtests):
    for scope, prefix, starts in [
        (None, "model", ("",)),
        ("", "model", ("model.", "")),
        ("vision_tower", "model", ("model.vision_tower.", "vision_tower.")),
        ("vision_tower", "", ("vision_tower.",)),
    ]:
        with subtests.test(scope=scope, prefix=prefix, starts=starts):
            assert starts_of_rule(scope, prefix) == starts

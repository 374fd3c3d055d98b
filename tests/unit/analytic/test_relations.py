"""Relations between config keys: what transformers raises if one is broken, and what is said."""

import json
import random

import pytest
from support.examples import one_in
from support.published_configs import VALUES

from auditor.analytic.config_classes.relations import RELATIONS, broken_relations, errors_by_type


@pytest.mark.oracle
def test_a_model_with_a_broken_relation_raises_and_one_without_does_not(subtests):
    """The numbers are others than those that the file was made with."""
    from rebuild_relations import working_values  # noqa: PLC0415 - seconds
    from small_models import outcome  # noqa: PLC0415 - likewise

    draw = random.Random(5)  # noqa: S311 - a draw of cases
    numbers = {"kv-heads": 8, "experts-per-token": 6, "expert-groups": 12, "groups-per-token": 4}
    for model_type in one_in(12, sorted(errors_by_type())):
        sound = working_values(model_type)
        for relation in RELATIONS:
            if relation.name not in (known := errors_by_type()[model_type]):
                continue
            first, second, error = known[relation.name]
            number = numbers[relation.name]
            others = [n for n in range(1, 2 * number) if not relation.holds(number, n)]
            values = {first: number, second: draw.choice(others)}
            with subtests.test(model_type=model_type, **values):
                assert outcome(model_type, {**sound, **values}) is not None
                [said] = broken_relations({"model_type": model_type, **values})
                assert error in said


def test_published_configs_and_defaults_have_no_broken_relation(subtests):
    for name, values in VALUES.items():
        with subtests.test(name=name):
            assert list(broken_relations(values)) == []


@pytest.mark.oracle
def test_the_defaults_of_config_classes_have_no_broken_relation():
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - seconds

    for model_type in errors_by_type():
        assert list(broken_relations(CONFIG_MAPPING[model_type]().to_dict())) == [], model_type


def test_the_sentence_says_what_would_fit():
    config = {"model_type": "llama", "num_attention_heads": 6, "num_key_value_heads": 4}
    [said] = broken_relations({"model_type": "llava", "text_config": config})
    assert said.startswith("text_config.num_key_value_heads 4 does not divide text_config.num_")
    assert said.endswith("raises RuntimeError; 1 or 2 or 3 or 6 would fit")


@pytest.mark.oracle
def test_the_bins_of_an_extractor_are_those_without_which_its_model_raises(subtests):
    from rebuild_companion_pairs import DATA, pairs  # noqa: PLC0415 - seconds

    known = json.loads((DATA / "companion_pairs.json").read_text())["bins"]
    for model_type in one_in(4, sorted(known)):
        with subtests.test(model_type=model_type):
            assert known[model_type] in [pair for _, pair in pairs([model_type])]


@pytest.mark.oracle
def test_a_model_raises_for_images_of_another_size(subtests):
    from image_sides import is_fixed  # noqa: PLC0415 - seconds
    from rebuild_companion_pairs import DATA  # noqa: PLC0415 - seconds

    known = json.loads((DATA / "companion_pairs.json").read_text())["sides"]
    for model_type in one_in(6, sorted(known)):
        with subtests.test(model_type=model_type):
            assert is_fixed(model_type, known[model_type])
    assert not is_fixed("dinov2", "image_size")  # it interpolates its positions

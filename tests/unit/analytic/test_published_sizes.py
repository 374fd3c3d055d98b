"""Published sizes of models of diffusers and timm, against what their configs imply."""

from collections import Counter

from support.published_figures import SIZES

from auditor.analytic import Config
from auditor.audit.expected import OLDER_CLASSES, Implied, expectation_of

NAMES = [size["model"] for size in SIZES]


def test_a_config_implies_the_published_size(subtests):
    for size in SIZES:
        with subtests.test(size=size):
            implied = expectation_of(Config(values=size["config"]), None)
            assert isinstance(implied, Implied)
            expectation = implied.expectation
            assert expectation.by != "oracle"
            counted = expectation.parameters
            if size["counts"] == "elements":  # of all that is stored
                counted = sum(one.elements for one in expectation.needed)
            assert round(counted / size["precision"]) == size["figure"] / size["precision"]


def test_ten_models_of_each_library_are_exact_and_have_a_source():
    exact = Counter(size["library"] for size in SIZES if size["precision"] == 1)
    assert min(exact["diffusers"], exact["timm"]) >= 10
    assert all(size["source"] for size in SIZES)
    assert len(set(NAMES)) == len(NAMES)


def test_an_older_config_is_of_the_class_that_has_taken_its_place(subtests):
    for norm, target in OLDER_CLASSES.items():
        with subtests.test(norm=norm, target=target):
            older = {
                "_class_name": "Transformer2DModel",
                "norm_type": norm,
                "num_vector_embeds": None,
            }
            implied = expectation_of(Config(values=older), None)
            assert implied.expectation.target == target
            assert (
                implied.expectation
                == expectation_of(Config(values={"_class_name": target}), None)[0]
            )

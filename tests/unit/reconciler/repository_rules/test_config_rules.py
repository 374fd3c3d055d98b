"""Of two values of one fact transformers takes the one that the finding names."""

import pytest
from support.examples import one_in

from auditor.analytic.config_classes import of_model_type
from auditor.companions.reading import Companions
from auditor.reconciler.repository_rules.config_rules import (
    FLAT,
    contradiction_findings,
    key_findings,
    near,
)
from auditor.reconciler.repository_rules.processors import library_processors
from auditor.reconciler.repository_rules.repository_case import RepositoryCase

LINEAR = {"rope_type": "linear", "factor": 2.0}


def case_of(model_type, values):
    return RepositoryCase(
        names=frozenset(),
        is_complete=False,
        config_file="config.json",
        config={"model_type": model_type, **values},
        kind=of_model_type(model_type),
        is_custom=False,
        target=None,
        stored=(),
        expected=tuple,
        companions=Companions.of(()),
    )


TAKEN = {
    "dtype": (
        "llama",
        {"torch_dtype": "bfloat16", "dtype": "float16"},
        lambda config: str(config.dtype).removeprefix("torch."),
        "float16",
        "dtype",
    ),
    "base of rope_parameters": (
        "llama",
        {"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        lambda config: config.rope_parameters["rope_theta"],
        5e5,
        "rope_parameters.rope_theta",
    ),
    "base of rope_scaling": (
        "llama",
        {"rope_theta": 1e4, "rope_scaling": {**LINEAR, "rope_theta": 5e5}},
        lambda config: config.rope_parameters["rope_theta"],
        5e5,
        "rope_scaling.rope_theta",
    ),
    "rope_scaling beside rope_parameters": (
        "llama",
        {
            "rope_scaling": {**LINEAR, "rope_theta": 1e4},
            "rope_parameters": {**LINEAR, "factor": 8.0, "rope_theta": 1e4},
        },
        lambda config: config.rope_parameters["factor"],
        2.0,
        "rope_scaling",
    ),
    "a synonym": (
        "gpt2",
        {"n_embd": 32, "hidden_size": 48},
        lambda config: config.n_embd,
        48,
        "hidden_size",
    ),
    "num_labels": (
        "bert",
        {"num_labels": 3, "id2label": {"0": "a", "1": "b"}},
        lambda config: config.num_labels,
        3,
        "num_labels",
    ),
    "id2label": (
        "bert",
        {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1}},
        lambda config: config.num_labels,
        3,
        "id2label for the number of labels",
    ),
    "text_config": (
        "llava",
        {"vocab_size": 99, "text_config": {"model_type": "llama", "vocab_size": 77}},
        lambda config: config.get_text_config().vocab_size,
        77,
        "text_config.vocab_size",
    ),
}


def test_the_library_takes_what_the_finding_says(subtests):
    for name, (model_type, values, read, taken, key) in TAKEN.items():
        with subtests.test(name=name):
            [finding] = contradiction_findings(case_of(model_type, values))
            assert finding.reason.endswith(f" takes {key}")
            once = dict([next(iter(values.items()))])
            assert [*contradiction_findings(case_of(model_type, once))] == []
            transformers = pytest.importorskip("transformers", reason="the judge of who wins")
            built = transformers.CONFIG_MAPPING[model_type].from_dict(
                {"model_type": model_type, **values}
            )
            assert read(built) == taken


def test_a_pair_reveals_a_size_of_its_decoder():
    decoder = {"model_type": "gpt2", "vocab_size": 8}
    values = {"encoder": {"model_type": "vit"}, "vocab_size": 7, "decoder": decoder}
    [finding] = contradiction_findings(case_of("vision-encoder-decoder", values))
    assert [key for _, key, _ in finding.says] == ["vocab_size", "decoder.vocab_size"]


def test_a_name_is_near_the_only_known_one_that_is_one_slip_away(subtests):
    for name, known, found in [
        ("num_hiden_layers", ["num_hidden_layers", "hidden_size"], "num_hidden_layers"),
        ("num_hiddden_layers", ["num_hidden_layers"], "num_hidden_layers"),
        ("num_hidben_layers", ["num_hidden_layers"], "num_hidden_layers"),
        ("num_hiddne_layers", ["num_hidden_layers"], "num_hidden_layers"),
        ("num_hidden_layers", ["num_hidden_layers"], None),
        ("num_hidne_layers", ["num_hidden_layers"], None),
        ("v_head_din", ["v_head_dim", "q_head_din"], None),  # two are as near
        ("heads", ["head_s"], None),  # too short
    ]:
        with subtests.test(name=name):
            assert near(name, known) == found


def test_a_flat_config_is_read_by_the_class_of_its_text(subtests):
    for model_type in sorted(FLAT):
        with subtests.test(model_type=model_type):
            transformers = pytest.importorskip(
                "transformers", reason="the judge of who reads a key"
            )
            built = transformers.CONFIG_MAPPING[model_type].from_dict({"intermediate_size": 48})
            assert built.text_config.intermediate_size == 48
            [finding] = key_findings(case_of(model_type, {"intermediate_sizes": 48}))
            assert finding.says[1][1] == "intermediate_size"
            nested = {"text_config": {}, "intermediate_sizes": 48}
            assert [*key_findings(case_of(model_type, nested))] == []


@pytest.mark.oracle
def test_a_default_config_of_the_library_has_no_unknown_key():
    transformers = pytest.importorskip("transformers", reason="it writes the configs")
    for model_type, config_class in one_in(12, transformers.CONFIG_MAPPING.items()):
        try:
            values = config_class().to_dict()
        except Exception:  # noqa: BLE001, S112 - a class that cannot be built without arguments
            continue
        assert not [*key_findings(case_of(model_type, values))], model_type


@pytest.mark.oracle
def test_the_library_finds_the_classes_that_the_data_file_has():
    pytest.importorskip("transformers", reason="the judge of which classes there are")
    from rebuild_processors import processors  # noqa: PLC0415 - imports the library
    from transformers.models.auto.feature_extraction_auto import (  # noqa: PLC0415
        feature_extractor_class_from_name,
    )

    known = library_processors()
    rebuilt = processors()
    assert (known.transformers, known.by_type) == (rebuilt["transformers"], rebuilt["by_type"])
    assert known.classes == set(rebuilt["classes"])
    for name in ("WhisperFeatureExtractor", "ViTFeatureExtractor", "NoSuchFeatureExtractor"):
        is_class = feature_extractor_class_from_name(name) is not None
        assert (name in known.classes) is is_class, name

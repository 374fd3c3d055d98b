"""The values to write in a config so that a key has a value."""

from auditor.analytic.config_keys import NULL, config_with, set_values

LABELS = {"id2label": {"0": "a", "1": "b"}, "num_labels": 3}


def test_a_number_of_labels_that_is_not_an_integer_leaves_the_labels(subtests):
    for value in [None, NULL, "3", 2.5]:
        with subtests.test(value=value):
            assert config_with(LABELS, "num_labels", value) == {"num_labels": value}


def test_a_number_of_labels_resizes_the_labels():
    values = config_with(LABELS, "num_labels", 3)
    assert values["num_labels"] == 3
    assert values["id2label"] == {"0": "a", "1": "b", "2": "LABEL_2"}
    assert values["label2id"] == {"a": 0, "b": 1, "LABEL_2": 2}


def test_values_by_path_do_not_change_the_objects_that_other_paths_set():
    inner = {"heads": 4}
    config = set_values({}, {"by_layer": {"1": inner}, "by_layer.1.heads": 8})
    assert (config, inner) == ({"by_layer": {"1": {"heads": 8}}}, {"heads": 4})

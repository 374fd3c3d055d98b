"""diff, through the real command."""

import json

from support.running import run


def test_two_vocabularies_differ_in_the_tensors_that_they_shape():
    args = ("diff", "bert-base-uncased", "bert-base-chinese", "--source", "bundled")
    done = run(*args, "--format", "json")
    assert done.returncode == 1
    tables = json.loads(done.stdout)
    assert "lost" not in tables
    changes = {row["tensors"]: (row["before"], row["after"]) for row in tables["tensors"]}
    assert changes.pop("model.safetensors") == (None, None)  # another sha256
    assert changes == {
        "bert.embeddings.word_embeddings.weight": ("30522 x 768", "21128 x 768"),
        "cls.predictions.bias": ("30522", "21128"),
    }
    explained = {row["config key"]: row["tensors explained"] for row in tables["config"]}
    assert explained["vocab_size"] == 2
    whole = tables["modules"][0]
    assert whole["difference"] == 102_882_442 - 110_106_428
    for form, sign in (("markdown", "| --- |"), ("csv", "name,table,"), ("terminal", "vocab_size")):
        assert sign in run(*args, "--format", form).stdout


def test_a_model_is_the_same_as_itself():
    args = ("diff", "bert-base-cased", "bert-base-cased", "--source", "bundled")
    done = run(*args)
    assert done.returncode == 0
    assert done.stdout.startswith("B is A: the same bytes in all 206.\n")
    assert "bert.encoder" not in done.stdout  # a table of zeros
    assert "bert.encoder" in run(*args, "--format", "csv").stdout


def test_unreadable_models_and_wrong_options_have_their_exit_codes(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert run("diff", str(tmp_path), str(tmp_path)).returncode == 3
    assert run("diff", "a", "b", "--format", "docx").returncode == 2

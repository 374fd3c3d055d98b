"""Releases of transformers: conditions, records and the keys that `fix` adds."""

import json
from pathlib import Path

import pytest

from auditor import UsageError, audit
from auditor.engines.release_data import engine_groups, release_records, releases_named


def test_a_condition_names_the_recorded_releases_that_meet_it() -> None:
    assert releases_named("transformers==5.10") == ("transformers 5.10.4",)
    assert releases_named("transformers>=4.57,<5.1") == (
        "transformers 4.57.6",
        "transformers 5.0.0",
    )
    assert engine_groups("mlx, transformers>=5,<5.9") == ["mlx", "transformers>=5,<5.9"]


@pytest.mark.parametrize("text", ["transformers==3.0", "transformers==9", "transformers=5"])
def test_a_release_that_was_not_recorded_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"--for"):
        releases_named(text)


def test_an_older_entry_is_the_newer_one_with_what_differs() -> None:
    records = release_records()
    newest, oldest = (records.type("llama", records.releases[at]) for at in (0, -1))
    assert newest is not None
    assert oldest is not None
    assert newest["class"] == oldest["class"] == "LlamaConfig"
    assert newest["rope"] != oldest["rope"]
    assert records.writer("4.33.0") == records.releases[-1] == "4.57.6"


def test_a_verdict_has_the_keys_that_a_release_reads(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 512345.0},
        "transformers_version": "5.24.0",
    }
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    release = "transformers==4.57.6"
    [before] = audit(str(folder), engines=(release,)).engines
    assert before.additions == {
        "rope_theta": 512345.0,
        "rope_scaling": {"factor": 4.0, "rope_type": "linear"},
    }

"""explain and architectures, through the real command."""

import json
import re
from pathlib import Path

import pytest
from support.pipelines import stable_diffusion, written
from support.running import run

from auditor.analytic import catalogue

MIXTRAL = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


def _config(folder: Path, values: dict[str, object]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return str(path)


def test_the_formula_of_the_published_write_up_is_what_explain_prints() -> None:
    done = run("explain", "bert-base-chinese", "--source", "bundled")
    assert done.returncode == 0
    assert re.search(r"encoder +85,054,464 +83.2% N\*\(12\*D\^2 \+ 13\*D\)", done.stdout)
    assert "102,290,312 parameters" in done.stdout


def test_a_mixture_of_experts_has_fewer_parameters_active_than_there_are(tmp_path: Path) -> None:
    done = run("explain", _config(tmp_path, MIXTRAL))
    assert "46,702,792,704 parameters" in done.stdout
    assert "12,879,925,248 (27.6%) active for one token" in done.stdout


def test_symbolic_shows_no_value(tmp_path: Path) -> None:
    done = run("explain", _config(tmp_path, MIXTRAL), "--symbolic")
    assert "4,096" not in done.stdout
    assert "D  hidden_size" in done.stdout


def test_latex_balances_its_braces_and_escapes_names(tmp_path: Path) -> None:
    done = run("explain", _config(tmp_path, MIXTRAL), "--latex", "--depth", "4")
    assert done.stdout.count("{") - done.stdout.count(r"\{") == (
        done.stdout.count("}") - done.stdout.count(r"\}")
    )
    assert r"block\_sparse\_moe" in done.stdout
    assert r"D^{2}" in done.stdout


@pytest.mark.parametrize(
    ("values", "code", "said"),
    [
        ({"model_type": "no-such"}, 3, "unknown-architecture"),
        ({"architectures": ["BertModel"], "hidden_size": -1}, 1, "hidden_size -1"),
    ],
)
def test_a_config_that_explains_nothing_says_why(tmp_path: Path, values, code, said) -> None:
    done = run("explain", _config(tmp_path, values))
    assert done.returncode == code
    assert said in done.stdout + done.stderr


def test_what_keeps_the_class_from_being_built_is_said_beside_the_formula(tmp_path: Path) -> None:
    values = {"architectures": ["BertModel"], "pad_token_id": 30522, "hidden_act": "gleu"}
    done = run("explain", _config(tmp_path, values))
    assert (done.returncode, "V*D" in done.stdout) == (0, True)
    said = [line for line in done.stderr.splitlines() if line.startswith("audit: bad-config: ")]
    assert [line.split()[2] for line in said] == ["hidden_act", "pad_token_id"]
    assert not run("explain", _config(tmp_path, values), "-q").stderr


def test_of_a_pipeline_the_folders_that_can_be_explained_are_named(tmp_path: Path) -> None:
    done = run("explain", written(tmp_path, stable_diffusion()))
    said = "has no config.json; there is one in 'text_encoder', 'unet', 'vae': name such a folder\n"
    assert (done.returncode, done.stdout, done.stderr.endswith(said)) == (3, "", True)
    assert run("explain", str(tmp_path / "text_encoder")).returncode == 0


def test_weights_that_cannot_be_read_do_not_matter_to_explain(tmp_path: Path) -> None:
    _config(tmp_path, MIXTRAL)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    assert run("explain", str(tmp_path)).returncode == 0


def test_architectures_lists_every_class_of_the_catalogue() -> None:
    done = run("architectures")
    text = re.sub(r"\s+", " ", done.stdout)
    for model_type in catalogue.model_types():
        assert f" {model_type} " in f" {text}"
        for name in catalogue.siblings(model_type):
            assert name in text

"""An adapter's config in the folder of a whole model: transformers heeds it where PEFT is."""

import json
import shutil

import pytest
from msgspec.structs import replace

from auditor import audit
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.downloader import local_folder

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # of libraries

SMALL = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    """A whole model in the folder of an adapter."""
    folder = tmp_path_factory.mktemp("merged")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
    model.save_pretrained(folder)
    adapter = peft.LoraConfig(target_modules=["q_proj"])
    peft.get_peft_model(model, adapter).save_pretrained(folder)
    return folder


def copied(merged, folder, *without):
    shutil.copytree(merged, folder)
    for name in without:
        (folder / name).unlink()
    return folder


def loaded(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def test_an_adapter_that_is_loaded_on_top_is_a_warning_with_both_readings(merged):
    assert any("lora_A" in name for name in loaded(merged).state_dict())
    report = audit(str(merged))
    [found] = [one for one in report.findings if one.severity != "info"]
    assert (found.kind, found.severity, found.file) == ("adapter-beside", "warning", SETTINGS)
    assert "do not show whether it is merged" in found.reason
    assert f"delete or move {SETTINGS} and {WEIGHTS}" in found.reason


def test_without_its_weights_nothing_is_loaded_and_that_is_an_error(merged, tmp_path):
    folder = copied(merged, tmp_path / "left", WEIGHTS)
    with pytest.raises(FileNotFoundError, match="adapter_model"):
        loaded(folder)
    report = audit(str(folder))
    [found] = [one for one in report.findings if one.severity == "error"]
    observed = (found.kind, found.names, found.declared_in)
    assert observed == ("missing-component", (WEIGHTS,), SETTINGS)


def test_without_its_config_it_is_no_adapter(merged, tmp_path):
    folder = copied(merged, tmp_path / "no-config", SETTINGS)
    assert not any("lora_A" in name for name in loaded(folder).state_dict())
    report = audit(str(folder))
    assert (report.verdict, report.notes) == ("clean", ())


def test_what_a_cache_lacks_may_be_at_the_hub(merged, tmp_path):
    folder = copied(merged, tmp_path / "cached", WEIGHTS)
    assert json.loads((folder / SETTINGS).read_text())["peft_type"] == "LORA"
    cached = replace(local_folder.read(folder, "cached"), commit="0" * 40)
    assert examine(cached, Options(requested="cached")).verdict == "clean"

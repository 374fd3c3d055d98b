"""Whatever peft saves closes clean, and what is done to it afterwards is found."""

import json
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants
from safetensors import safe_open
from support.adapters_by_peft import BASES, adapter, base_config
from support.builders import safetensors_bytes
from support.examples import one_in
from support.hub import Hub

import auditor
from auditor import Report
from auditor.downloader import retry

pytest.importorskip("peft", reason="writes the adapters")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

METHODS = {
    "lora": ("LoraConfig", {"r": 3}),
    "dora-with-biases": ("LoraConfig", {"r": 2, "use_dora": True, "bias": "all"}),
    "ranks": ("LoraConfig", {"r": 2, "use_rslora": True, "rank_pattern": {"q_proj": 5}}),
    "ia3": ("IA3Config", {"feedforward_modules": []}),
    "adalora": ("AdaLoraConfig", {"init_r": 3, "target_r": 2, "total_step": 10}),
    "vera": ("VeraConfig", {"r": 3}),
    "prompt": ("PromptTuningConfig", {"num_virtual_tokens": 4}),
    "prefix": ("PrefixTuningConfig", {"num_virtual_tokens": 4}),
}
CASES = [
    pytest.param(base, method, id=f"{base}-{method}")
    for base in ("bert", "gpt2", "llama", "qwen2", "roberta", "t5")
    for method in METHODS
] + [
    pytest.param(base, method, id=f"{base}-{method}")
    for base in ("distilbert", "vit", "mixtral", "gpt_oss", "gpt_neox")
    for method in ("lora", "ranks", "ia3")
]


@pytest.fixture
def at_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)
    yield hub
    close_session()


def saved(folder: Path, hub: Hub, base: str, method: str, **more) -> Path:
    """The adapter in a folder, which names a base that the Hub has."""
    name, options = METHODS[method]
    if not name.startswith("Pr"):
        options = {"target_modules": list(BASES[base][3][:2]), **options}
    adapter(folder, base, name, **options, **more)
    settings = json.loads((folder / "adapter_config.json").read_bytes())
    settings["base_model_name_or_path"] = f"org/{base}"
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    hub.add(f"org/{base}", {"config.json": json.dumps(base_config(base)).encode()})
    return folder


@pytest.mark.parametrize(("base", "method"), one_in(3, CASES))
def test_what_peft_saves_closes_clean(base, method, at_hub, tmp_path):
    report = auditor.audit(str(saved(tmp_path / "a", at_hub, base, method)))
    assert isinstance(report, Report), report
    assert (report.verdict, report.residual) == ("clean", 0), report.findings
    assert report.target.endswith(f" of {BASES[base][0]}")


def shapes(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        names = list(file.keys())
        return {name: ("F32", tuple(file.get_slice(name).get_shape())) for name in names}


@pytest.mark.parametrize("base", ["bert", "gpt2", "llama", "t5"])
def test_each_tensor_of_an_adapter_is_reported_missing_unexpected_or_mismatched(
    base, at_hub, tmp_path
):
    folder = saved(tmp_path / "a", at_hub, base, "lora")
    whole = shapes(folder)
    for name, (dtype, shape) in one_in(8, whole.items()):
        without = {each: what for each, what in whole.items() if each != name}
        longer = {**whole, name: (dtype, (shape[0] + 1, *shape[1:]))}
        renamed = {**without, f"{name}.default": (dtype, shape)}
        for tensors, expected in (
            (without, {"missing": {name}}),
            (longer, {"mismatched": {name}}),
            (renamed, {"missing": {name}, "unexpected": {f"{name}.default"}}),
        ):
            (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors))
            report = auditor.audit(str(folder))
            found = {one.kind: set(one.names) for one in report.findings}
            assert (found, report.residual) == (expected, 0), (name, report.findings)

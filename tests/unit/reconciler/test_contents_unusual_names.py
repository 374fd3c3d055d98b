"""Weights under names that one loader or another looks for, and not the usual ones."""

import json
import shutil
from pathlib import Path

import pytest
from support.checkpoints import config_bytes, expect, stored_by
from support.hub import Hub
from support.running import run
from support.sharding import Table, alarms, kinds, shard_names, sharded, write

from auditor import Reason, Report, Unaudited, audit
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch
from auditor.errors import SourceError

WIDE = {"hidden_size": 16, "intermediate_size": 32, "architectures": ["BertModel"]}
BERT = expect("BertModel", **WIDE)
PLAIN: Table = {tensor.name: (tensor.dtype, tensor.shape) for tensor in stored_by(BERT)}
GPTQ = {"bits": 4, "group_size": 4, "desc_act": False, "sym": True}
QUANTIZE = "quantize_config.json"
LORA: Table = {
    f"unet.down_blocks.0.attentions.{n}.to_{of}.lora_{side}.weight": ("F16", shape)
    for n in range(2)
    for of in "qkv"
    for side, shape in (("A", (4, 320)), ("B", (320, 4)))
}


def packed() -> Table:
    """Every matrix of the encoder in four bits, as AutoGPTQ packs it; the rest as it is."""
    table: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, (dtype, shape) in PLAIN.items():
        module, _, last = name.rpartition(".")
        if "encoder" not in module or last != "weight" or "LayerNorm" in module:
            table[name] = (dtype, tuple(shape))
            continue
        out, into = shape
        table[f"{module}.qweight"] = ("I32", (into // 8, out))
        table[f"{module}.qzeros"] = ("I32", (into // 4, out // 8))
        table[f"{module}.scales"] = ("F16", (into // 4, out))
    return table


def torch_file(path: Path, table: Table) -> None:
    torch = pytest.importorskip("torch")
    dtypes = {"F32": torch.float32, "F16": torch.float16, "I32": torch.int32}
    torch.save(
        {name: torch.zeros(shape, dtype=dtypes[kind]) for name, (kind, shape) in table.items()},
        path,
    )


def folder_of(path: Path, config: bytes | None, **files: dict[str, object] | bytes) -> Path:
    path.mkdir(exist_ok=True)
    if config is not None:
        (path / "config.json").write_bytes(config)
    for name, content in files.items():
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        (path / f"{name}.json").write_bytes(text)
    return path


def renamed(folder: Path, stem: str) -> Path:
    """Shards and index of another base name."""
    for path in list(folder.glob("model*")):
        path.rename(folder / path.name.replace("model", stem, 1))
    (index,) = folder.glob("*.index.json")
    index.write_text(index.read_text().replace('"model-', f'"{stem}-'))
    return folder


# --- LoRA of diffusers ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["pytorch_lora_weights", "learned_embeds", "pytorch_custom_diffusion_weights"]
)
@pytest.mark.parametrize("ending", ["safetensors", "bin"])
@pytest.mark.parametrize("config", [None, b'{"model_type": "bert"}'])
def test_what_diffusers_loads_into_a_pipeline_is_tallied(name, ending, config, tmp_path, hub_env):
    folder = folder_of(tmp_path / "m", config)
    path = folder / f"{name}.{ending}"
    write(path, LORA) if ending == "safetensors" else torch_file(path, LORA)
    outcome = audit(str(folder))
    assert isinstance(outcome, Unaudited)
    assert outcome.reason is Reason.UNKNOWN_ARCHITECTURE
    assert "it is tallied, not reconciled" in outcome.detail
    assert (outcome.observed.tensors, outcome.observed.parameters) == (12, 12 * 4 * 320)
    assert alarms(outcome) == []
    if (name, ending, config) == ("pytorch_lora_weights", "safetensors", None):
        assert run(str(folder), env=hub_env).returncode == 3


def test_a_lora_on_the_hub_takes_two_requests(tmp_path, at_hub: Hub):
    write(tmp_path / "pytorch_lora_weights.safetensors", LORA)
    content = (tmp_path / "pytorch_lora_weights.safetensors").read_bytes()
    at_hub.add("o/m", {"pytorch_lora_weights.safetensors": content, "README.md": b"x"})
    outcome = audit("o/m")
    assert (outcome.observed.tensors, outcome.verdict) == (12, "unaudited")
    assert outcome.fetched.requests <= 5  # the listing, the file behind a redirect, two in vain


# --- base names of AutoGPTQ -------------------------------------------------------------------

NAMES = {
    "by its own key": ("q4", {QUANTIZE: GPTQ | {"model_file_base_name": "q4"}}),
    "by an older key": ("q4", {QUANTIZE: GPTQ | {"model_basename": "q4"}}),
    "with its ending": ("q4", {QUANTIZE: GPTQ | {"model_file_base_name": "q4.safetensors"}}),
    "by default": ("gptq_model-4bit-4g", {QUANTIZE: GPTQ}),
    "by a key of null": ("gptq_model-4bit-4g", {QUANTIZE: GPTQ | {"model_file_base_name": None}}),
}


def quantised(tmp_path: Path, stem: str, files: dict[str, dict[str, object]], how: str) -> Path:
    named = {name.removesuffix(".json"): content for name, content in files.items()}
    folder = folder_of(tmp_path / "m", config_bytes(**WIDE), **named)
    if how == "sharded":
        return renamed(sharded(folder, packed(), None), stem)
    path = folder / f"{stem}.{how}"
    write(path, packed()) if how == "safetensors" else torch_file(path, packed())
    return folder


@pytest.mark.parametrize("how", ["safetensors", "bin", "pt", "sharded"])
@pytest.mark.parametrize("names", NAMES)
def test_the_base_name_that_quantize_config_gives_is_read(how, names, tmp_path):
    stem, files = NAMES[names]
    report = audit(str(quantised(tmp_path, stem, files, how)))
    assert isinstance(report, Report)
    assert (kinds(report), report.residual) == ([], 0)
    assert report.observed.parameters == BERT.parameters
    assert any(f"{stem}." in note and "AutoGPTQ loads it" in note for note in report.notes)


def test_the_base_name_may_stand_in_config_json(tmp_path):
    said = {"quantization_config": {"quant_method": "gptq", **GPTQ, "model_file_base_name": "q4"}}
    folder = folder_of(tmp_path / "m", config_bytes(**WIDE, **said))
    write(folder / "q4.safetensors", packed())
    report = audit(str(folder))
    assert (kinds(report), report.residual) == ([], 0)


def test_the_usual_name_is_audited_where_it_is_there(tmp_path):
    folder = quantised(tmp_path, "q4", NAMES["by its own key"][1], "safetensors")
    write(folder / "model.safetensors", packed())
    snapshot = fetch(str(folder))
    assert [head.name for head in snapshot.headers] == ["model.safetensors"]


PATHS = (
    "../secret",
    "sub/q4",
    "/etc/passwd",
    "..",
    ".",
    "",
    "c:\\q4",
    "sub\\q4",
    "q4\0",
    "x" * 5000,
)
STRANGE = (None, 4, True, ["q4"], {"q4": 1}, "https://example.org/q4")


@pytest.mark.parametrize("base", [*PATHS, *STRANGE], ids=repr)
def test_a_base_name_is_never_a_path(base, tmp_path):
    write(tmp_path / "secret.safetensors", packed())
    folder = folder_of(
        tmp_path / "m",
        config_bytes(**WIDE),
        quantize_config=GPTQ | {"bits": None, "model_file_base_name": base},
    )
    (folder / "sub").mkdir()
    for name in ("sub/q4.safetensors", "sub\\q4.safetensors", "other.safetensors"):
        write(folder / name, packed())
    with pytest.raises(SourceError) as raised:
        fetch(str(folder))
    assert raised.value.reason is Reason.NO_SAFETENSORS
    assert "other.safetensors" in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"q4"', b"\xff", b"{}"])
def test_a_broken_quantize_config_names_nothing(content, tmp_path):
    folder = folder_of(tmp_path / "m", config_bytes(**WIDE), quantize_config=content)
    write(folder / "q4.safetensors", packed())
    outcome = audit(str(folder))
    assert (outcome.verdict, outcome.reason) == ("unaudited", Reason.NO_SAFETENSORS)


def test_on_the_hub_no_file_is_requested_twice(tmp_path, at_hub: Hub):
    folder = quantised(tmp_path, "q4", NAMES["by its own key"][1], "safetensors")
    at_hub.add("o/m", {path.name: path.read_bytes() for path in folder.iterdir()})
    report = audit("o/m")
    assert (kinds(report), report.residual) == ([], 0)
    texts = [record.path for record in at_hub.log if record.path.endswith(".json")]
    assert len(texts) == len(set(texts)) == 2


# --- transformers_weights ---------------------------------------------------------------------


@pytest.mark.parametrize("usual", [False, True])
@pytest.mark.parametrize("how", ["one", "sharded"])
def test_the_file_that_the_config_names_is_what_transformers_loads(usual, how, tmp_path):
    name = "mine.safetensors" if how == "one" else "mine.safetensors.index.json"
    config = config_bytes(**WIDE, transformers_weights=name)
    folder = folder_of(tmp_path / "m", config)
    if how == "one":
        write(folder / name, PLAIN)
    else:
        renamed(sharded(folder, PLAIN, None), "mine")
    if usual:
        write(folder / "model.safetensors", {"another": ("F32", (2,))})
    report = audit(str(folder))
    assert (kinds(report), report.residual) == ([], 0)
    assert report.notes == (f"config.json names {name} in transformers_weights",)


@pytest.mark.parametrize(
    "name", ["../mine.safetensors", "/mine.safetensors", "mine.bin", "", 3, None]
)
def test_a_file_that_transformers_would_not_take_is_not_read(name, tmp_path):
    write(tmp_path / "mine.safetensors", {"another": ("F32", (2,))})
    folder = folder_of(tmp_path / "m", config_bytes(**WIDE, transformers_weights=name))
    torch_file(folder / "mine.bin", {"another": ("F32", (2,))})
    write(folder / "model.safetensors", PLAIN)
    snapshot = fetch(str(folder))
    assert [head.name for head in snapshot.headers] == ["model.safetensors"]


# --- what only some loaders find --------------------------------------------------------------

MLX = {"quantization": {"group_size": 32, "bits": 4}}


def by_mlx(config: dict[str, object], shards: int, path: Path) -> Path:
    """A Llama, quantised as MLX does, in shards that no index names."""
    table: dict[str, tuple[str, tuple[int, ...]]] = {"model.norm.weight": ("F16", (64,))}
    for module in ("model.embed_tokens", "lm_head"):
        table |= {
            f"{module}.weight": ("U32", (96, 8)),
            f"{module}.scales": ("F16", (96, 2)),
            f"{module}.biases": ("F16", (96, 2)),
        }
    folder = folder_of(path, json.dumps(config).encode())
    for at, name in enumerate(shard_names(shards)):
        write(folder / name, {key: table[key] for key in sorted(table)[at::shards]})
    return folder


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 0,
    "num_attention_heads": 4,
    "vocab_size": 96,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_mlx_reads_all_files_of_its_pattern(shards, tmp_path):
    report = audit(str(by_mlx(LLAMA | MLX, shards, tmp_path / "m")))
    assert (kinds(report), report.residual) == ([], 0)
    assert report.observed.parameters == 2 * 96 * 64 + 64


def test_shards_without_an_index_are_read_and_transformers_cannot_find_them(tmp_path):
    folder = folder_of(tmp_path / "m", config_bytes(**WIDE))
    sharded(folder, PLAIN, None)
    (folder / "model.safetensors.index.json").unlink()
    report = audit(str(folder))
    assert (kinds(report), report.residual) == (["bad-index"], 0)
    assert report.observed.parameters == BERT.parameters
    assert "transformers looks for model.safetensors or" in alarms(report)[0].reason


def test_a_lone_index_of_another_name_is_read_as_accelerate_does(tmp_path):
    folder = renamed(sharded(tmp_path / "m", PLAIN, config_bytes(**WIDE)), "quantised")
    report = audit(str(folder))
    assert (kinds(report), report.residual) == ([], 0)


def test_a_snapshot_gives_the_same_findings(tmp_path):
    lora = folder_of(tmp_path / "lora", None)
    write(lora / "pytorch_lora_weights.safetensors", LORA)
    named = folder_of(
        tmp_path / "named", config_bytes(**WIDE, transformers_weights="a.safetensors")
    )
    write(named / "a.safetensors", PLAIN)
    folders = [
        lora,
        named,
        quantised(tmp_path, "q4", NAMES["by its own key"][1], "sharded"),
        by_mlx(LLAMA, 3, tmp_path / "mlx"),
    ]
    for folder in folders:
        before = audit(str(folder), companions=False)
        file = tmp_path / "m.json"
        file.write_bytes(dump(fetch(str(folder)), "m.json"))
        shutil.rmtree(folder)
        after = audit(str(file))
        for field in ("verdict", "observed", "modules", "findings", "unchecked", "notes"):
            assert getattr(after, field) == getattr(before, field)

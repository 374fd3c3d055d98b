"""Checkpoints whose every name and value is one that some reader of an output would act upon."""

import json
import pickle
from collections.abc import Iterable
from pathlib import Path

from support import gguf_files, small_adapters, torch_files
from support.bad_input.making import CONFIG, INDEX, TENSORS, WEIGHTS
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes
from support.pipelines import INDEX as PIPELINE
from support.pipelines import UNET, UNET_TENSORS

# For terminals, logs of workflows, HTML, Markdown, spreadsheets and LaTeX, in this order.
HOSTILE_NAMES = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b31mred",
    "\u202egnp.exe",
    "zero\u200bwidth",
    "filler\u3164filler",
    "line\u2028separator",
    "next\x85line",
    "line\nfeed",
    "carriage\rreturn",
    "nul\x00",
    "::stop-commands::x",
    "  ::error::said",
    "\n::error::on a line of its own",
    "x##[error]y",
    "##vso[task.setvariable variable=a]b",
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "<!--<script>",
    "&lt;b&gt;",
    "]]>",
    "@octocat",
    "see @octocat",
    "#1",
    "GH-1",
    "owner/name#1",
    "https://evil.example/a",
    "www.evil.example",
    "[click](http://evil.example)",
    "![](http://evil.example/x.png)",
    "```",
    "`tick`",
    "a|b\\|c",
    "*b* _i_ ~~s~~ $x$",
    "# heading",
    "- item",
    "=cmd|'/c calc'!A1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\\input{/etc/passwd}%",
    "{0-3}",
    "a:",
    "#",
)
ALL_IN_ONE = " ".join(HOSTILE_NAMES)
FOLDER_NAME = "::stop-commands::x ##[error]@octocat #1 <b>`|\x1b[31m\u202e\n::error::y"
# A system of files takes neither of these in the name of a file.
FILE_NAMES = tuple(name for name in HOSTILE_NAMES if not set(name) & set("/\x00"))


def hostile_folders(top: Path) -> dict[str, Path]:
    """Write one folder for each kind of checkpoint; return them by kind."""
    makers = {
        "tensors": _hostile_tensors,
        "config": _hostile_config,
        "index": _hostile_index,
        "adapter": _hostile_adapter,
        "pipeline": _hostile_pipeline,
        "pickle": _hostile_pickle,
        "gguf": _hostile_gguf,
        "type": _hostile_type,
        "prefix": _hostile_prefix,
        "surrogate": _hostile_surrogate,
    }
    folders = {}
    for kind, make in makers.items():
        folder = top / f"{FOLDER_NAME} {kind}"
        folder.mkdir(parents=True)
        make(folder)
        folders[kind] = folder
    return folders


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _named(names: Iterable[str], shape: tuple[int, ...] = (2, 3)) -> dict:
    return dict.fromkeys(names, ("F32", shape))


def _hostile_tensors(folder: Path) -> None:
    """A sound BERT beside tensors, modules and companion files of hostile names."""
    modules = (f"{name}.weight" for name in HOSTILE_NAMES)
    lists = (f"{name}.{number}.bias" for name in HOSTILE_NAMES for number in range(3))
    added = {**_named(HOSTILE_NAMES), **_named(modules), **_named(lists, (4,))}
    (folder / CONFIG).write_bytes(config_bytes(architectures=["BertModel"]))
    (folder / WEIGHTS).write_bytes(safetensors_bytes({**TENSORS, **added}))
    card = [f"{name} has 110M parameters, {name} 2.7B parameters\n" for name in HOSTILE_NAMES]
    data = {"base_model": ALL_IN_ONE, "tags": HOSTILE_NAMES, "model-index": ALL_IN_ONE}
    (folder / "README.md").write_text(f"---\n{json.dumps(data)}\n---\n{''.join(card)}")
    texts = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), ALL_IN_ONE)
    (folder / "tokenizer_config.json").write_bytes(
        _json({**texts, "tokenizer_class": ALL_IN_ONE, "chat_template": "{% bad " + ALL_IN_ONE})
    )
    words = {word: 90 + number for number, word in enumerate(HOSTILE_NAMES)}
    added_tokens = [{"id": number, "content": word} for word, number in words.items()]
    (folder / "tokenizer.json").write_bytes(
        _json({"model": {"type": ALL_IN_ONE, "vocab": words}, "added_tokens": added_tokens})
    )
    (folder / "generation_config.json").write_bytes(
        _json({"eos_token_id": 900, **dict.fromkeys(HOSTILE_NAMES, ALL_IN_ONE)})
    )
    (folder / "preprocessor_config.json").write_bytes(_json({"processor_class": ALL_IN_ONE}))


def _hostile_config(folder: Path) -> None:
    """A BERT whose config has a hostile value for every key that a rule reads."""
    keys = ("_name_or_path", "hidden_act", "torch_dtype", "dtype", "position_embedding_type")
    values = dict.fromkeys((*HOSTILE_NAMES, *keys), ALL_IN_ONE)
    values |= {"auto_map": dict.fromkeys(("AutoModel", *HOSTILE_NAMES), ALL_IN_ONE)}
    values |= {"vocab_size": 17, "id2label": dict.fromkeys(HOSTILE_NAMES, ALL_IN_ONE)}
    config = config_bytes(architectures=["BertModel", *HOSTILE_NAMES], **values)
    (folder / CONFIG).write_bytes(config)
    (folder / WEIGHTS).write_bytes(safetensors_bytes(TENSORS))


def _hostile_index(folder: Path) -> None:
    """An index that names hostile files and tensors, most of which do not exist."""
    (folder / CONFIG).write_bytes(config_bytes(architectures=["BertModel"]))
    shards = [f"{name}.safetensors" for name in FILE_NAMES[:12]]
    for shard in shards:
        (folder / shard).write_bytes(safetensors_bytes({**TENSORS, **_named(HOSTILE_NAMES)}))
    weight_map = dict(zip(TENSORS, shards * len(TENSORS), strict=False))
    weight_map |= {name: f"{name}.safetensors" for name in HOSTILE_NAMES}
    content = {"metadata": {"total_size": ALL_IN_ONE}, "weight_map": weight_map}
    (folder / INDEX).write_bytes(_json(content))


def _hostile_adapter(folder: Path) -> None:
    settings = {
        **small_adapters.LORA,
        "base_model_name_or_path": ALL_IN_ONE,
        "target_modules": [*small_adapters.LORA["target_modules"], *HOSTILE_NAMES],
    }
    tensors = {**small_adapters.TENSORS, **_named(f"{name}.lora_A.weight" for name in FILE_NAMES)}
    for name, content in small_adapters.files(settings, tensors).items():
        (folder / name).write_bytes(content)


def _hostile_pipeline(folder: Path) -> None:
    """A diffusers pipeline whose components and classes have hostile names."""
    names = [name for name in FILE_NAMES if name.strip() == name][:20]
    manifest = {**PIPELINE, **{name: ["diffusers", f"{name} Model"] for name in names}}
    (folder / "model_index.json").write_bytes(_json({**manifest, "_class_name": ALL_IN_ONE}))
    for name in names[:10]:
        (folder / name).mkdir()
        (folder / name / CONFIG).write_bytes(_json({**UNET, "_class_name": f"{name} Model"}))
        weights = safetensors_bytes({**UNET_TENSORS, **_named(HOSTILE_NAMES)})
        (folder / name / "diffusion_pytorch_model.safetensors").write_bytes(weights)


def _hostile_pickle(folder: Path) -> None:
    """A pickle that would import hostile modules, and has tensors of hostile names."""
    (folder / CONFIG).write_bytes(config_bytes(architectures=["BertModel"]))
    imports = [f"c{name.replace(chr(10), '')}\n{'system'}\n0" for name in HOSTILE_NAMES[-30:]]
    state = torch_files.state(_named(HOSTILE_NAMES))
    protocol, rest = state[:2], state[2:]
    assert protocol[:1] == pickle.PROTO
    content = protocol + "".join(imports).encode() + rest
    named = _named(HOSTILE_NAMES)
    (folder / "pytorch_model.bin").write_bytes(
        torch_files.zipped(content, torch_files.lengths(named))
    )


def _hostile_gguf(folder: Path) -> None:
    pairs = gguf_files.model_pairs(ALL_IN_ONE, {"block_count": 1})
    tensors = [gguf_files.Tensor(name) for name in HOSTILE_NAMES]
    (folder / "model.gguf").write_bytes(gguf_files.gguf_bytes(pairs, tensors))


def _hostile_type(folder: Path) -> None:
    """A model type and a class that nobody knows."""
    config = {"model_type": ALL_IN_ONE, "architectures": [ALL_IN_ONE], "hidden_size": 4}
    (folder / CONFIG).write_bytes(_json(config))
    (folder / WEIGHTS).write_bytes(safetensors_bytes(_named(HOSTILE_NAMES)))


def _hostile_prefix(folder: Path) -> None:
    """A BERT whose tensors lie under one hostile prefix, which `audit fix` would strip."""
    (folder / CONFIG).write_bytes(config_bytes(architectures=["BertModel"]))
    prefixed = {f"::error::@octocat\x1b##[b].{name}": form for name, form in TENSORS.items()}
    (folder / WEIGHTS).write_bytes(safetensors_bytes(prefixed))


def _hostile_surrogate(folder: Path) -> None:
    """A config with half a character, which JSON can write and UTF-8 cannot."""
    (folder / CONFIG).write_bytes(_json({"model_type": "\ud800", "\udfff": ALL_IN_ONE}))
    (folder / WEIGHTS).write_bytes(safetensors_bytes(_named(HOSTILE_NAMES)))

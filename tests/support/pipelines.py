"""Small repositories of several models: diffusers' pipelines, sentence transformers, folders."""

import json
from collections.abc import Mapping
from pathlib import Path

from support.builders import safetensors_bytes
from support.checkpoints import TINY
from support.hub import Hub

from auditor import Report, Unaudited
from auditor.analytic import Role, catalogue, read_config
from auditor.findings import FindingKind, kind_of

Files = dict[str, bytes]

BERT = {**TINY, "architectures": ["BertModel"], "torch_dtype": "float32"}
CLIP = {
    "architectures": ["CLIPTextModel"],
    "model_type": "clip_text_model",
    "vocab_size": 13,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 7,
    "projection_dim": 8,
    "torch_dtype": "float32",
}
UNET = {"_class_name": "Kandinsky3UNet", "_diffusers_version": "0.36.0"}
VAE = {"_class_name": "NextAutoencoder", "_diffusers_version": "0.36.0"}
DENSE = {"in_features": 4, "out_features": 3, "bias": True, "activation_function": "x.Tanh"}

UNET_TENSORS = {"conv_in.weight": ("F32", (3, 4, 3, 3)), "conv_in.bias": ("F32", (3,))}
VAE_TENSORS = {"encoder.conv_in.weight": ("F32", (2, 3, 3, 3))}
DENSE_TENSORS = {"linear.weight": ("F32", (3, 4)), "linear.bias": ("F32", (3,))}

INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "_diffusers_version": "0.36.0",
    "feature_extractor": [None, None],
    "requires_safety_checker": False,
    "safety_checker": [None, None],
    "scheduler": ["diffusers", "PNDMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "Kandinsky3UNet"],
    "vae": ["diffusers", "NextAutoencoder"],
}
TRANSFORMER = {
    "idx": 0,
    "name": "0",
    "path": "",
    "type": "sentence_transformers.models.Transformer",
}
POOLING = {
    "idx": 1,
    "name": "1",
    "path": "1_Pooling",
    "type": "sentence_transformers.models.Pooling",
}
SECOND = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def tensors(config: Mapping[str, object]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What save_pretrained stores of a class with a closed form."""
    read = read_config("config.json", text(config))
    expectation = catalogue.expect(read, read.architectures[0])
    return {
        tensor.name: ("F32", tensor.shape)
        for tensor in expectation.tensors
        if tensor.role is Role.PARAMETER
    }


# A tensor too many, and the biases of one layer too few.
CLIP_SPOILT = {
    "stray": ("F32", (2,)),
    **{name: one for name, one in tensors(CLIP).items() if not name.endswith("fc1.bias")},
}


def model(config: Mapping[str, object], stored=None, *, name: str = "model.safetensors") -> Files:
    """A config and one weight file; by default what the class stores."""
    stored = tensors(config) if stored is None else stored
    return {"config.json": text(config), name: safetensors_bytes(stored)}


def under(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": content for name, content in files.items()}


DIFFUSION = "diffusion_pytorch_model.safetensors"


def stable_diffusion(index: Mapping[str, object] = INDEX, **changes: Files) -> Files:
    """A pipeline of three models, a scheduler and a tokenizer; `changes` by folder, {} for none."""
    folders = {
        "text_encoder": model(CLIP),
        "unet": model(UNET, UNET_TENSORS, name=DIFFUSION),
        "vae": model(VAE, VAE_TENSORS, name=DIFFUSION),
        "scheduler": {"scheduler_config.json": b"{}"},
        "tokenizer": {"tokenizer_config.json": b"{}"},
        **changes,
    }
    files = {"model_index.json": text(index)}
    for folder, content in folders.items():
        files |= under(folder, content)
    return files


def encoders(**folders: Files) -> Files:
    """A pipeline whose every model has a closed form."""
    index = {"_class_name": "TwoEncoders", "text_encoder": ["transformers", "CLIPTextModel"]}
    index |= {"text_encoder_2": ["transformers", "BertModel"]}
    files = {"model_index.json": text(index)}
    named = {"text_encoder": model(CLIP), "text_encoder_2": model(BERT), **folders}
    for folder, content in named.items():
        files |= under(folder, content)
    return files


def sentence(*modules: Mapping[str, object], **folders: Files) -> Files:
    """A sentence transformer whose transformer is the repository's own."""
    files = {**model(BERT), "modules.json": text([TRANSFORMER, POOLING, *modules])}
    files |= under("1_Pooling", {"config.json": text({"word_embedding_dimension": 4})})
    for folder, content in folders.items():
        files |= under(folder, content)
    return files


def written(path: Path, files: Files) -> str:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return str(path)


def asked(hub: Hub) -> int:
    """Requests to the Hub itself, redirects to its storage left out."""
    return sum(record.origin == "hub" for record in hub.log)


# --- what came of them ------------------------------------------------------------------------


def parts(outcome: Report | Unaudited) -> dict[str, Report | Unaudited]:
    return {str(part.component): part for part in outcome.parts}


def verdicts(outcome: Report | Unaudited) -> dict[str, str]:
    return {name: part.verdict for name, part in parts(outcome).items()}


def kinds(outcome: Report | Unaudited) -> list[FindingKind]:
    return [kind_of(finding) for finding in outcome.findings]

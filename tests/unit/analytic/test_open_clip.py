"""The closed forms of open_clip have the state dicts that open_clip 3.3.0 builds.

tests/data/open_clip.jsonl has a line for each built-in config and for 78 random ones: name,
model_cfg, class, number of tensors, learned parameters, and the first 16 digits of the sha256 of
the sorted lines "name shape" of the model on torch's meta device. tools/rebuild_open_clip.py
writes it.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest
from support.builders import safetensors_bytes

from auditor import audit
from auditor.analytic import Config, ExpectedTensor, Role
from auditor.analytic.open_clip import class_name, expect_open_clip
from auditor.audit.expected import library_class
from auditor.errors import CheckpointError, SourceError

FACTS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "open_clip.jsonl").read_text().splitlines()
]
# timm's own pooling of these towers is another one, which the table of timm has.
OUTSIDE = {"EVA01-g-14", "EVA01-g-14-plus"}
SMALL: Mapping[str, Any] = {
    "embed_dim": 8,
    "vision_cfg": {"layers": 1, "width": 16, "head_width": 8, "patch_size": 4, "image_size": 8},
    "text_cfg": {"layers": 1, "width": 16, "heads": 2, "context_length": 7, "vocab_size": 50},
}


def expected(model_cfg: Mapping[str, Any]) -> tuple[ExpectedTensor, ...]:
    config = Config(values={"model_cfg": model_cfg})
    return expect_open_clip(config, class_name(config)).tensors


def is_covered(model_cfg: Mapping[str, Any]) -> bool:
    try:
        return bool(expected(model_cfg))
    except SourceError:
        return False


def built(model_cfg: Mapping[str, Any]) -> tuple[ExpectedTensor, ...]:
    """The tensors without those that only older versions of transformers store."""
    tensors = expected(model_cfg)
    older = {one for one in tensors if one.role is Role.LEGACY and "text.transformer." in one.name}
    return tuple(one for one in tensors if one not in older)


def digest(tensors: tuple[ExpectedTensor, ...]) -> str:
    lines = sorted((one.name, f"{one.name} {list(one.shape)}") for one in tensors)
    return hashlib.sha256("\n".join(line for _, line in lines).encode()).hexdigest()[:16]


def test_all_built_in_and_most_random_configs_are_covered():
    left = {name for name, model_cfg, *_ in FACTS if not is_covered(model_cfg)}
    assert {name for name in left if "random" not in name} == OUTSIDE
    assert len(left - OUTSIDE) <= 12


def test_a_covered_model_has_the_tensors_that_open_clip_builds(subtests):
    for name, model_cfg, kind, count, parameters, known in FACTS:
        if not is_covered(model_cfg):
            continue
        with subtests.test(name=name):
            tensors = built(model_cfg)
            learned = sum(prod(one.shape) for one in tensors if one.role is Role.PARAMETER)
            assert (len(tensors), learned, digest(tensors)) == (count, parameters, known)
            assert library_class(Config(values={"model_cfg": model_cfg})).name == kind


# docs/model_profile.csv of open_clip: millions of parameters, with the models that it downloads.
PUBLISHED = {
    "coca_roberta-ViT-B-32": 420.37,
    "mt5-base-ViT-B-32": 365.71,
    "mt5-xl-ViT-H-14": 2306.75,
    "nllb-clip-base": 501.89,
    "nllb-clip-base-siglip": 507.47,
    "nllb-clip-large": 1399.22,
    "nllb-clip-large-siglip": 1195.5,
    "roberta-ViT-B-32": 212.72,
    "xlm-roberta-base-ViT-B-32": 366.12,
    "xlm-roberta-large-ViT-H-14": 1193.01,
}


def test_a_text_model_has_the_published_size(subtests):
    for name, model_cfg, *_ in FACTS:
        if name not in PUBLISHED:
            continue
        with subtests.test(name=name):
            learned = sum(prod(one.shape) for one in built(model_cfg) if one.role is Role.PARAMETER)
            assert round(learned / 1e6, 2) == PUBLISHED[name]


def test_a_position_index_of_older_versions_is_a_buffer(tmp_path):
    text = {"hf_model_name": "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"}
    config = {**SMALL, "text_cfg": text}
    stored = {one.name: ("F32", one.shape) for one in expected(config)}
    assert stored["text.transformer.embeddings.position_ids"] == ("F32", (1, 512))
    header = safetensors_bytes(stored, data=False)
    weights = tmp_path / "open_clip_model.safetensors"
    weights.write_bytes(header)
    os.truncate(weights, len(header) + 4 * sum(prod(shape) for _, shape in stored.values()))
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config}))
    outcome = audit(tmp_path)
    assert (outcome.verdict, outcome.target) == ("clean", "CustomTextCLIP")


def test_a_value_that_no_form_covers_is_refused(subtests):
    for tower, key, value in [
        ("vision_cfg", "qk_norm", True),
        ("vision_cfg", "attentional_pool", "parallel"),
        ("vision_cfg", "pos_embed_type", "sin_cos_2d"),
        ("vision_cfg", "norm_kwargs", {"elementwise_affine": False}),
        ("vision_cfg", "timm_model_name", "no_such_network"),
        ("vision_cfg", "image_size", [0, 8]),
        ("vision_cfg", "layers", "twelve"),
        ("vision_cfg", "timm_model_name", ["convnext_base"]),
        ("vision_cfg", "layers", 10**9),
        ("text_cfg", "hf_model_name", "someone/roberta-base"),
        ("text_cfg", "hf_model_name", ["roberta-base"]),
        ("text_cfg", "later_key", 1),
    ]:
        with (
            subtests.test(tower=tower, key=key, value=value),
            pytest.raises((SourceError, CheckpointError)),
        ):
            expected({**SMALL, tower: {**SMALL[tower], key: value}})


def test_a_repository_of_open_clip_is_reconciled(subtests, tmp_path):
    for lost in [None, "visual.ln_post.weight"]:
        with subtests.test(lost=lost):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            stored = {one.name: ("F32", one.shape) for one in expected(SMALL) if one.name != lost}
            (place / "open_clip_model.safetensors").write_bytes(safetensors_bytes(stored))
            (place / "open_clip_config.json").write_text(json.dumps({"model_cfg": SMALL}))
            by_folder = audit(place)
            assert [one.names for one in by_folder.findings] == ([(lost,)] if lost else [])
            assert by_folder.target == "CLIP"
            by_file = audit(place / "open_clip_model.safetensors")
            assert by_file.findings == by_folder.findings


def test_a_text_tower_with_the_names_of_clip_loads_into_the_other_classes(tmp_path):
    stored = {one.name: ("F32", one.shape) for one in expected(SMALL)}
    (tmp_path / "open_clip_model.safetensors").write_bytes(safetensors_bytes(stored))
    config = {"model_cfg": {**SMALL, "custom_text": True}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    outcome = audit(tmp_path)
    assert (outcome.verdict, outcome.target) == ("clean", "CustomTextCLIP")

"""Manifests that are broken or hostile: a finding or a refusal, and nothing outside is read."""

import json
from pathlib import Path

import pytest
from support.bad_input.making import POINTER, Row, cases, found
from support.bad_input.making import assert_says as said
from support.bad_input.running import CLEAN, FINDINGS, UNAUDITED, USAGE
from support.builders import safetensors_bytes
from support.pipelines import (
    BERT,
    DENSE,
    DENSE_TENSORS,
    SECOND,
    TRANSFORMER,
    encoders,
    model,
    sentence,
    stable_diffusion,
    tensors,
    text,
    under,
    written,
)

INDEX, MODULES = "model_index.json", "modules.json"
GOOD = encoders()


def manifest(content: bytes):
    """The good pipeline, under another model_index.json."""
    return lambda folder: written(folder, GOOD | {INDEX: content})


def modules(content: bytes):
    """A good sentence transformer with a Dense, under another modules.json."""
    files = sentence(SECOND, **{"2_Dense": model(DENSE, DENSE_TENSORS)})
    return lambda folder: written(folder, files | {MODULES: content})


def many(count: int) -> bytes:
    lines = ",".join(f'"c{number}": ["diffusers", "X"]' for number in range(count))
    return f"{{{lines}}}".encode()


def moved(path: object) -> bytes:
    return text([TRANSFORMER, {**SECOND, "path": path}])


def refused(name: str, spoil, says: str) -> Row:
    return Row(name=name, spoil=spoil, code=UNAUDITED, kind=None, says=says)


ROWS = (
    found("30,000 components", manifest(many(30_000)), "bad-config", "names 30,000 components"),
    refused("a million components", manifest(many(1_000_000)), "expected at most 1,048,576"),
    found("a list", manifest(b"[]"), "bad-config", "is a list, expected a JSON object"),
    found("nothing", manifest(b""), "bad-config", "is empty"),
    found("a pointer", manifest(POINTER), "bad-config", "is a Git LFS pointer"),
    found("deep", manifest(b'{"a":' * 90_000), "bad-config", "levels deep"),
    found(
        "a way out",
        manifest(text({"../../../etc": ["transformers", "BertModel"]})),
        "bad-config",
        "'../../../etc' leaves the folder",
    ),
    found(
        "an absolute path",
        manifest(text({"/etc": ["transformers", "BertModel"]})),
        "bad-config",
        "'/etc' is an absolute path",
    ),
    found(
        "a class that is a number",
        manifest(text({"text_encoder": ["transformers", 1]})),
        "bad-config",
        "'text_encoder' is .*expected .library, class.",
    ),
    found("modules: an object", modules(b"{}"), "bad-config", "is an object, expected a list"),
    found(
        "modules: two objects",
        modules(b'[],"x":[]'),
        "bad-config",
        "is several values, expected a list",
    ),
    found("modules: a pointer", modules(POINTER), "bad-config", "is a Git LFS pointer"),
    found("modules: a number", modules(b"[1]"), "bad-config", "is 1, expected an object"),
    found("modules: a way out", modules(moved("../x")), "bad-config", "leaves the folder"),
    found(
        "modules: a path of null",
        modules(moved(None)),
        "bad-config",
        "path is null, expected a string",
    ),
    found(
        "modules: the same folder", modules(moved("")), "bad-config", "two modules in the folder"
    ),
    found(
        "modules: too many",
        modules(text([{**SECOND, "path": str(number)} for number in range(900)])),
        "bad-config",
        "names 900 components",
    ),
)


@pytest.mark.parametrize("row", cases(ROWS))
def test_a_hostile_manifest_ends_in_one_line(row, audit, tmp_path):
    row.spoil(tmp_path / "input")
    said(audit(str(tmp_path / "input"), "--format", "json"), row)


@pytest.mark.parametrize("name", ["pipeline", "modules"])
def test_the_same_under_a_good_manifest_is_clean(name, audit, tmp_path):
    good = {"pipeline": manifest(GOOD[INDEX]), "modules": modules(text([TRANSFORMER, SECOND]))}
    good[name](tmp_path / "input")
    assert audit(str(tmp_path / "input")).code == CLEAN


def test_a_folder_that_is_a_link_out_of_the_repository_is_no_component(audit, tmp_path):
    outside = Path(written(tmp_path / "outside", model(DENSE, DENSE_TENSORS)))
    written(tmp_path / "input", GOOD)
    index = {**json.loads(GOOD[INDEX]), "vae": ["diffusers", "AutoencoderKL"]}
    (tmp_path / "input" / INDEX).write_bytes(text(index))
    (tmp_path / "input" / "vae").symlink_to(outside)
    ran = audit(str(tmp_path / "input"), "--format", "json")
    assert [one["component"] for one in ran.outcome["parts"]] == ["text_encoder", "text_encoder_2"]
    assert [one["kind"] for one in ran.outcome["findings"]] == ["missing-component"]


def test_65_folders_are_more_than_are_read(audit, tmp_path):
    files = {}
    for number in range(65):
        files |= under(f"f{number}", {"config.json": b"{}", "model.safetensors": b""})
    written(tmp_path / "input", files)
    row = refused("65", None, "65 folders hold models, expected at most 64")
    said(audit(str(tmp_path / "input"), "--format", "json"), row)


@pytest.mark.parametrize(
    ("variant", "code", "says"),
    [
        ("fp16", CLEAN, ""),
        ("bf16", UNAUDITED, "no weights of the variant 'bf16'"),
        ("../fp16", USAGE, "is not a variant: a variant is a word such as fp16"),
        ("", USAGE, "'' is not a variant"),
    ],
)
def test_a_variant_is_a_plain_name_and_has_to_exist(variant, code, says, audit, tmp_path):
    half = {name: ("F16", shape) for name, (_, shape) in tensors(BERT).items()}
    encoder = {**model(BERT), "model.fp16.safetensors": safetensors_bytes(half)}
    written(tmp_path / "input", encoders(text_encoder_2=encoder))
    ran = audit(str(tmp_path / "input"), "--variant", variant, "--format", "json")
    assert ran.code == code
    assert says in ran.stderr


@pytest.mark.parametrize(
    ("files", "code"),
    [
        (GOOD, CLEAN),
        (stable_diffusion(), UNAUDITED),
        (stable_diffusion(vae={}), FINDINGS),
        (stable_diffusion({"_class_name": "Nothing"}), UNAUDITED),
    ],
    ids=["clean", "classes of diffusers", "a part is missing", "nothing is declared"],
)
def test_the_worst_part_decides_how_a_pipeline_ends(files, code, audit, tmp_path):
    written(tmp_path / "input", files)
    assert audit(str(tmp_path / "input")).code == code

"""Laws 2, 4 and 12 of repositories of several models: sums, orders, snapshots."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import replace
from support.builders import safetensors_bytes
from support.examples import examples
from support.pipelines import (
    CLIP,
    CLIP_SPOILT,
    DIFFUSION,
    INDEX,
    UNET,
    UNET_TENSORS,
    VAE,
    VAE_TENSORS,
    model,
    stable_diffusion,
    text,
    written,
)

import auditor
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch
from auditor.findings import Severity
from auditor.formats import as_json

SCHEMA = Path(as_json.__file__).parent / "report.schema.json"
FOLDERS = st.fixed_dictionaries(
    {},
    optional={
        "text_encoder": st.sampled_from([model(CLIP), model(CLIP, CLIP_SPOILT), {}]),
        "unet": st.sampled_from([model(UNET, UNET_TENSORS, name=DIFFUSION), {}]),
        "vae": st.sampled_from(
            [
                model(VAE, VAE_TENSORS, name=DIFFUSION),
                {"config.json": text(VAE)},
                {"config.json": b"{", DIFFUSION: safetensors_bytes(VAE_TENSORS)},
                {"config.json": text(VAE), DIFFUSION: b"\xff" * 9},
            ]
        ),
    },
)


@given(FOLDERS, st.permutations(list(INDEX.items())))
def test_the_order_of_components_changes_nothing(tmp_path_factory, folders, entries) -> None:
    folder = tmp_path_factory.mktemp("pipe")
    snapshot = fetch(written(folder, stable_diffusion(INDEX, **folders)))
    turned = stable_diffusion(dict(entries), **dict(reversed(folders.items())))
    manifest = replace(snapshot.manifest, content=turned["model_index.json"])
    other = replace(snapshot, manifest=manifest)
    assert examine(other, Options(requested="x")) == examine(snapshot, Options(requested="x"))


@examples(40)
@given(FOLDERS)
def test_the_counts_of_a_repository_are_the_sums_over_its_models(tmp_path_factory, folders) -> None:
    whole = auditor.audit(written(tmp_path_factory.mktemp("pipe"), stable_diffusion(**folders)))
    held = [part.observed for part in whole.parts if part.observed]
    if not held:
        assert whole.observed is None
        return
    for name in ("files", "tensors", "elements", "parameters", "bytes", "trainable"):
        figures = [getattr(one, name) for one in held]
        assert getattr(whole.observed, name) == (None if None in figures else sum(figures))
    assert sum(count for _, count in whole.observed.by_dtype) == whole.observed.elements
    assert {one.name for one in whole.observed.by_file} == {
        one.name for part in held for one in part.by_file
    }
    rows = {row.prefix: row for row in whole.modules}
    assert rows[""].parameters == sum(row.parameters or 0 for name, row in rows.items() if name)
    known = [part.expected for part in whole.parts]
    assert (whole.expected is None) == (None in known)
    verdicts = {part.verdict for part in whole.parts}
    alarms = {one.severity for each in whole.every for one in each.findings} - {Severity.INFO}
    otherwise = "unaudited" if "unaudited" in verdicts else "clean"
    assert whole.verdict == ("findings" if alarms else otherwise)


@examples(30)  # law 12 has pipelines, too
@given(FOLDERS)
def test_a_snapshot_has_every_model_and_its_json_is_valid(tmp_path_factory, folders) -> None:
    folder = written(tmp_path_factory.mktemp("pipe"), stable_diffusion(**folders))
    snapshot = fetch(folder)
    kept = load(dump(snapshot, "x.json"), "x.json")
    assert kept == replace(snapshot, source=kept.source, fetched=kept.fetched)
    outcomes = (examine(one, Options(requested="x")) for one in (snapshot, kept))
    before, after = (json.loads(as_json.render(outcome)) for outcome in outcomes)
    Draft202012Validator(json.loads(SCHEMA.read_bytes())).validate(before)
    for outcome in (before, after):
        for one in (outcome, *outcome["parts"]):
            one["source"] = None
    assert before == after

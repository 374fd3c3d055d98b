"""Repositories of several models, end to end: from a folder, from a Hub, from a snapshot."""

import shutil
from pathlib import Path

import pytest
from support.builders import safetensors_bytes
from support.hub import Hub, ServerError
from support.pipelines import (
    BERT,
    CLIP,
    CLIP_SPOILT,
    DENSE,
    DENSE_TENSORS,
    DIFFUSION,
    SECOND,
    UNET,
    UNET_TENSORS,
    VAE,
    VAE_TENSORS,
    asked,
    encoders,
    kinds,
    model,
    parts,
    sentence,
    stable_diffusion,
    tensors,
    text,
    under,
    verdicts,
    written,
)

import auditor
from auditor import Reason, Report, Unaudited, UsageError
from auditor.checkpoint.snapshot import Fetched
from auditor.cli.console import FailOn, exit_code
from auditor.findings import (
    Missing,
    MissingComponent,
    OtherWeights,
    Unexpected,
)
from auditor.findings.ignore import Ignore

# --- a whole and its parts --------------------------------------------------------------------


def test_a_pipeline_of_known_classes_is_clean(tmp_path: Path) -> None:
    report = auditor.audit(written(tmp_path, encoders()))
    assert isinstance(report, Report)
    assert (report.target, report.verdict, report.residual) == ("TwoEncoders", "clean", 0)
    assert verdicts(report) == {"text_encoder": "clean", "text_encoder_2": "clean"}
    assert [part.target for part in report.parts] == ["CLIPTextModel", "BertModel"]
    assert report.expected.parameters == sum(part.expected.parameters for part in report.parts)
    assert exit_code(report, FailOn.WARNING) == 0


def test_an_aspect_that_one_part_did_not_check_is_named_before_the_part(tmp_path: Path) -> None:
    dense = model(DENSE, DENSE_TENSORS)
    report = auditor.audit(written(tmp_path, sentence(SECOND, **{"2_Dense": dense})))
    subjects = [line.partition(": ")[0] for line in report.unchecked]
    assert verdicts(report)["2_Dense"] == "clean"
    assert "2_Dense" not in subjects
    assert any(subject.endswith(" of 2_Dense") for subject in subjects)


def test_classes_of_diffusers_are_tallied_and_reported_as_unreconciled(tmp_path: Path) -> None:
    outcome = auditor.audit(written(tmp_path, stable_diffusion()))
    assert isinstance(outcome, Unaudited)
    assert (outcome.reason, outcome.target) == (
        Reason.UNKNOWN_ARCHITECTURE,
        "StableDiffusionPipeline",
    )
    assert verdicts(outcome) == {"text_encoder": "clean", "unet": "unaudited", "vae": "unaudited"}
    unet = parts(outcome)["unet"]
    assert (unet.target, unet.observed.parameters) == ("Kandinsky3UNet", 3 * 4 * 9 + 3)
    assert (outcome.expected, outcome.findings) == (None, ())
    assert any("unet" in line and "not compared" in line for line in outcome.unchecked)
    assert [exit_code(outcome, fail_on) for fail_on in FailOn] == [3, 3, 3]


def test_a_spoilt_component_is_named_in_its_own_part(tmp_path: Path) -> None:
    files = stable_diffusion(text_encoder=model(CLIP, CLIP_SPOILT))
    report = auditor.audit(written(tmp_path, files))
    assert isinstance(report, Report)
    assert (report.verdict, report.findings) == ("findings", ())
    encoder = parts(report)["text_encoder"]
    assert kinds(encoder) == [Missing, Unexpected]
    assert encoder.observed.by_file[0].name == "text_encoder/model.safetensors"
    assert encoder.residual == 0
    assert [exit_code(report, fail_on) for fail_on in FailOn] == [1, 1, 3]


def test_ignored_findings_of_a_part_leave_the_verdict_of_the_whole(tmp_path: Path) -> None:
    files = encoders(text_encoder=model(CLIP, {**tensors(CLIP), "stray": ("F32", (2,))}))
    folder = written(tmp_path, files)
    assert auditor.audit(folder).verdict == "findings"
    report = auditor.audit(folder, ignore=(Ignore.parse("unexpected:stray"),))
    assert (report.verdict, report.residual) == ("clean", 0)


def test_a_missing_declared_component_is_a_finding_of_the_repository(tmp_path: Path) -> None:
    report = auditor.audit(written(tmp_path, stable_diffusion(vae={})))
    assert isinstance(report, Report)
    assert kinds(report) == [MissingComponent]
    assert report.findings[0].names == ("vae",)
    assert "declares NextAutoencoder of diffusers in vae" in report.findings[0].reason


def test_a_component_that_lost_its_weights_is_one_too(tmp_path: Path) -> None:
    files = encoders(text_encoder={"config.json": text(CLIP)})
    report = auditor.audit(written(tmp_path, files))
    assert kinds(report) == [MissingComponent]
    assert "there are no weights in it" in report.findings[0].reason
    lost = parts(report)["text_encoder"]
    assert isinstance(lost, Unaudited)
    assert (lost.reason, lost.expected.parameters) == (Reason.NO_WEIGHTS, 1376)


def test_a_component_without_weights_by_nature_is_no_part(tmp_path: Path) -> None:
    outcome = auditor.audit(written(tmp_path, stable_diffusion()))
    assert {"scheduler", "tokenizer"}.isdisjoint(parts(outcome))
    assert kinds(outcome) == []


def test_a_checkpoint_of_a_training_is_no_pipeline(tmp_path: Path) -> None:
    files = under("unet", model(UNET, name=DIFFUSION, stored=UNET_TENSORS))
    states = dict.fromkeys(("optimizer.bin", "scheduler.bin", "random_states_0.pkl"), b"")
    [note] = auditor.audit(written(tmp_path / "training", files | states)).notes
    assert note.startswith(
        "'optimizer.bin', 'random_states_0.pkl', 'scheduler.bin' are states of a"
    )
    assert note.endswith("subfolder=...): 'unet'")
    assert auditor.audit(written(tmp_path / "sound", stable_diffusion() | states)).notes == ()


def test_weights_in_a_folder_that_no_component_names_are_not_opened(
    tmp_path: Path,
) -> None:
    stray = under("old_unet", model(UNET, name=DIFFUSION, stored=UNET_TENSORS))
    files = stable_diffusion() | stray | {"v1-5-pruned.safetensors": b""}
    outcome = auditor.audit(written(tmp_path, files))
    assert kinds(outcome) == [OtherWeights, OtherWeights]
    names = {finding.reason: finding.names for finding in outcome.findings}
    assert names["a model in a folder of its own; it was not opened"] == (f"old_unet/{DIFFUSION}",)
    assert "old_unet" not in parts(outcome)


def test_a_component_whose_weights_have_no_known_name_is_reported_as_unread(tmp_path: Path) -> None:
    files = stable_diffusion(unet={"config.json": text(UNET), "model.onnx": b""})
    files["vae/other.bin"] = b""
    del files[f"vae/{DIFFUSION}"], files["vae/config.json"]
    outcome = auditor.audit(written(tmp_path, files))
    assert verdicts(outcome) == {"text_encoder": "clean", "unet": "unaudited", "vae": "unaudited"}
    unet = parts(outcome)["unet"]
    assert isinstance(unet, Unaudited)
    assert unet.reason is Reason.NO_SAFETENSORS
    assert "'unet/model.onnx'" in unet.detail


def test_a_sharded_component_is_read_through_its_index(tmp_path: Path) -> None:
    stored = list(tensors(CLIP).items())
    shards = {
        "model-00001-of-00002.safetensors": dict(stored[:9]),
        "model-00002-of-00002.safetensors": dict(stored[9:]),
    }
    index = {"weight_map": {name: file for file, names in shards.items() for name in names}}
    folder = {file: safetensors_bytes(names) for file, names in shards.items()}
    folder |= {"config.json": text(CLIP), "model.safetensors.index.json": text(index)}
    report = auditor.audit(written(tmp_path, encoders(text_encoder=folder)))
    assert (report.verdict, report.residual, report.observed.files) == ("clean", 0, 3)
    (tmp_path / "text_encoder" / "model-00002-of-00002.safetensors").unlink()
    report = auditor.audit(str(tmp_path))
    part = parts(report)["text_encoder"]
    assert part.verdict == "findings"
    assert part.findings[0].file == "text_encoder/model-00002-of-00002.safetensors"


def test_folders_of_models_without_a_manifest_are_parts(tmp_path: Path) -> None:
    files = under("en", model(BERT)) | under("vision/clip", model(CLIP)) | {"README.md": b""}
    report = auditor.audit(written(tmp_path, files))
    assert (report.verdict, report.target) == ("clean", None)
    assert verdicts(report) == {"en": "clean", "vision/clip": "clean"}


def test_a_model_of_its_own_is_no_pipeline_whatever_folders_there_are(tmp_path: Path) -> None:
    files = {**model(BERT), **under("checkpoint-500", model(BERT))}
    report = auditor.audit(written(tmp_path, files))
    assert (report.target, report.parts, kinds(report)) == ("BertModel", (), [OtherWeights])


def test_one_component_of_diffusers_at_the_top_is_tallied_under_its_class(tmp_path: Path) -> None:
    outcome = auditor.audit(written(tmp_path, model(VAE, VAE_TENSORS, name=DIFFUSION)))
    assert isinstance(outcome, Unaudited)
    assert (outcome.reason, outcome.target) == (
        Reason.UNKNOWN_ARCHITECTURE,
        "NextAutoencoder",
    )
    assert (outcome.observed.parameters, outcome.parts) == (54, ())


def test_a_manifest_that_names_nothing_is_no_clean_bill(tmp_path: Path) -> None:
    index = {"_class_name": "X", "unet": [None, None]}
    outcome = auditor.audit(written(tmp_path / "one", {"model_index.json": text(index)}))
    assert outcome.verdict == "unaudited"
    outcome = auditor.audit(written(tmp_path / "two", stable_diffusion(index)))
    assert (outcome.verdict, outcome.parts) == ("unaudited", ())
    assert kinds(outcome) == [OtherWeights]


# --- variants ---------------------------------------------------------------------------------

HALF = {name: ("F16", shape) for name, (_, shape) in tensors(BERT).items()}
FP16 = {"model.fp16.safetensors": safetensors_bytes(HALF)}


def test_of_several_variants_one_has_to_be_named(tmp_path: Path) -> None:
    files = {"config.json": text(BERT), **FP16}
    files["model.bf16.safetensors"] = FP16["model.fp16.safetensors"]
    outcome = auditor.audit(written(tmp_path, files))
    assert isinstance(outcome, Unaudited)
    assert "'bf16', 'fp16'; name one with --variant" in outcome.detail


def test_a_missing_variant_is_reported(tmp_path: Path) -> None:
    folder = written(tmp_path / "one", {**model(BERT), **FP16})
    outcome = auditor.audit(folder, variant="fp8")
    assert isinstance(outcome, Unaudited)
    assert "no weights of the variant 'fp8'; its variants are 'fp16'" in outcome.detail
    outcome = auditor.audit(written(tmp_path / "two", encoders()), variant="fp16")
    assert "no weights of the variant 'fp16'" in outcome.detail
    with pytest.raises(UsageError, match="is not a variant"):
        auditor.audit(folder, variant="../fp16")


def test_a_component_without_the_variant_is_taken_as_it_is(tmp_path: Path) -> None:
    encoder = {**model(BERT), **FP16}
    report = auditor.audit(written(tmp_path, encoders(text_encoder_2=encoder)), variant="fp16")
    assert [part.observed.by_dtype[0][0] for part in report.parts] == ["F32", "F16"]
    assert [part.notes != () for part in report.parts] == [False, True]


def test_nothing_is_counted_twice_and_everything_is_reported(tmp_path: Path) -> None:
    weights = safetensors_bytes(tensors(BERT))
    copies = {
        "consolidated.safetensors": "the original format",
        "original/consolidated.00.pth": "the original format",
        "model-00001-of-00002.safetensors": "in shards",
        "model.safetensors.index.json": "an index of the same weights",
        "model.fp16.safetensors": "a variant",
        "tf_model.h5": "TensorFlow",
        "pytorch_model_fsdp_0/__0_0.distcp": "torch.distributed.checkpoint",
        "flax_model.msgpack": "Flax",
        "onnx/model.onnx": "ONNX",
        "model-Q4_0.gguf": "llama.cpp",
        "checkpoint-5/model.safetensors": "in a folder of its own",
        "second.safetensors.index.json": "an index of other weights",
        "other.safetensors": "not part of the audited set",
    }
    report = auditor.audit(written(tmp_path, {**model(BERT), **dict.fromkeys(copies, weights)}))
    assert (report.verdict, report.observed.parameters) == ("clean", 448)
    said = {name: one.reason for one in report.findings for name in one.names}
    assert said.keys() == copies.keys()
    assert {name: copies[name] in reason for name, reason in said.items()} == dict.fromkeys(
        copies, True
    )


# --- the Hub ----------------------------------------------------------------------------------


def test_a_pipeline_costs_a_listing_the_manifest_and_the_config_and_header_of_each_component(
    at_hub: Hub,
) -> None:
    at_hub.add("org/pipe", stable_diffusion() | under("old", model(BERT)))
    outcome = auditor.audit("org/pipe")
    assert verdicts(outcome) == {"text_encoder": "clean", "unet": "unaudited", "vae": "unaudited"}
    # two in vain, of a plain model; the last one is the tokenizer's
    assert asked(at_hub) == 1 + 2 + 1 + 2 * 3 + 1
    assert outcome.fetched.requests == len(at_hub.log) == 11 + 3  # each head by way of a redirect
    assert all(part.fetched == Fetched() for part in outcome.parts)
    assert not any("old/" in record.path for record in at_hub.log)


def test_a_sentence_transformer_of_one_model_costs_a_request_more(at_hub: Hub) -> None:
    at_hub.add("org/plain", model(BERT))
    at_hub.add("org/sentence", sentence())
    auditor.audit("org/plain", companions=False)
    plain = len(at_hub.log)
    at_hub.reset_log()
    assert auditor.audit("org/sentence", companions=False).verdict == "clean"
    assert len(at_hub.log) == plain + 1  # modules.json says what loads it


def test_a_hub_and_a_folder_give_the_same_parts(at_hub: Hub, tmp_path: Path) -> None:
    files = stable_diffusion(text_encoder=model(CLIP, CLIP_SPOILT), vae={})
    at_hub.add("org/pipe", files)
    hub, folder = auditor.audit("org/pipe"), auditor.audit(written(tmp_path / "pipe", files))
    assert (hub.verdict, hub.findings) == (folder.verdict, folder.findings)
    for one, other in zip(hub.parts, folder.parts, strict=True):
        assert (one.observed, one.findings, one.modules) == (
            other.observed,
            other.findings,
            other.modules,
        )


def test_a_component_that_cannot_be_fetched_leaves_the_pipeline_unaudited(at_hub: Hub) -> None:
    at_hub.add("org/pipe", stable_diffusion())
    at_hub.misbehave(fault=ServerError(), path="*/unet/config.json")
    outcome = auditor.audit("org/pipe")
    assert isinstance(outcome, Unaudited)
    assert (outcome.reason, outcome.parts) == (Reason.SERVER_ERROR, ())


def test_a_pipeline_in_the_cache_is_audited_as_far_as_it_is_there(
    at_hub: Hub, tmp_path: Path
) -> None:
    files = encoders()
    folder = tmp_path / "cache" / "models--org--pipe" / "snapshots" / ("ab" * 20)
    written(folder, files)
    (folder.parents[1] / "refs").mkdir()
    (folder.parents[1] / "refs" / "main").write_text("ab" * 20)
    report = auditor.audit("org/pipe", source="cache")
    assert (report.verdict, report.source) == ("clean", "cache")
    shutil.rmtree(folder / "text_encoder")
    report = auditor.audit("org/pipe", source="cache")
    assert (report.verdict, verdicts(report)) == ("clean", {"text_encoder_2": "clean"})
    assert any("there is no such folder" in line for line in report.unchecked)
    assert at_hub.log == ()


# --- hostile manifests ------------------------------------------------------------------------


def test_folders_without_end_are_refused(tmp_path: Path) -> None:
    files = {}
    for number in range(65):
        files |= under(f"f{number}", {"config.json": b"{}", "model.safetensors": b""})
    outcome = auditor.audit(written(tmp_path, files))
    assert isinstance(outcome, Unaudited)
    assert (outcome.reason, outcome.parts) == (Reason.TOO_LARGE, ())
    assert "65 folders hold models, expected at most 64" in outcome.detail


# --- the field's own library ------------------------------------------------------------------


@pytest.mark.oracle
def test_components_that_transformers_saved_are_clean(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="writes real components")
    sizes = {key: value for key, value in CLIP.items() if isinstance(value, int)}
    clip = transformers.CLIPTextModel(transformers.CLIPTextConfig(**sizes))
    bert = transformers.BertModel(
        transformers.BertConfig(
            **{key: value for key, value in BERT.items() if isinstance(value, int)}
        )
    )
    written(tmp_path, {"model_index.json": encoders()["model_index.json"]})
    clip.save_pretrained(tmp_path / "text_encoder", max_shard_size="2KB")
    bert.save_pretrained(tmp_path / "text_encoder_2")
    report = auditor.audit(str(tmp_path))
    assert (report.verdict, report.residual) == ("clean", 0)
    assert (tmp_path / "text_encoder" / "model.safetensors.index.json").is_file()
    counts = [sum(one.numel() for one in model.parameters()) for model in (clip, bert)]
    assert [part.observed.parameters for part in report.parts] == counts


def test_a_pooling_module_needs_its_folder_and_no_weights(tmp_path):
    files = sentence()
    assert auditor.audit(written(tmp_path / "all", files)).verdict == "clean"
    files.pop("1_Pooling/config.json")
    (finding,) = auditor.audit(written(tmp_path / "lacking", files)).findings
    assert MissingComponent.describes(finding)
    assert finding.folders == ("1_Pooling",)

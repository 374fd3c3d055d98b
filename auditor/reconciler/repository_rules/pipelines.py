"""Rules between the components of a diffusers pipeline; no file of weights alone breaks them.

A rule applies to the classes of pipelines that it names, because others put different channels
together. The widths come from the components' configs, as they are written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.analytic import ExpectedTensor
from auditor.checkpoint.filenames import variant_of
from auditor.checkpoint.snapshot import Snapshot
from auditor.companions.companion_files import CompanionFile
from auditor.companions.reading import Companions
from auditor.containers.manifest import Manifest
from auditor.findings import ConfigContradiction, Finding, MissingComponent, OfFolders, OfKeys
from auditor.messages import listed, named, quoted
from auditor.names.parts import file_name
from auditor.reconciler.contents import contents
from auditor.reconciler.repository_rules import RepositoryFindings, unchecked_companions
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text
from auditor.reconciler.repository_rules.token_ids import token_id_findings
from auditor.reconciler.repository_rules.two_readings import Reading, disagreement

_DATA = Path(__file__).parents[2] / "data" / "pipelines.json"


class PipelineComponent(NamedTuple):
    """A component of a pipeline: its config, and the names of its weight files."""

    folder: str
    config_file: str
    config: Mapping[str, Any]
    weights: tuple[str, ...]


Components = Mapping[str, PipelineComponent]


class _Rule(NamedTuple):
    """A width of the denoiser, by `component.key`: a sum of widths of other components."""

    width: str
    summed: tuple[str, ...]
    # The width is `times * sum + plus` for one of these pairs (times, plus).
    factors: tuple[tuple[int, int], ...] = ((1, 0),)


_TEXTS = ("text_encoder.hidden_size", "text_encoder_2.hidden_size")
_LATENTS = ("vae.latent_channels",)
_CHANNELS = _Rule("unet.in_channels", _LATENTS)
_MASKED = _CHANNELS._replace(factors=((1, 0), (2, 1)))  # or the masked image's latents, and a mask
_ONE_TEXT = _Rule("unet.cross_attention_dim", _TEXTS[:1])
_TWO_TEXTS = _Rule("unet.cross_attention_dim", _TEXTS)
_SD, _XL = (_CHANNELS, _ONE_TEXT), (_CHANNELS, _TWO_TEXTS)
_FLUX = (
    _Rule("transformer.in_channels", _LATENTS, ((4, 0),)),  # patches of 2 x 2
    _Rule("transformer.joint_attention_dim", ("text_encoder_2.d_model",)),
    _Rule("transformer.pooled_projection_dim", _TEXTS[:1]),
)
_SD3 = (
    _Rule("transformer.in_channels", _LATENTS),
    _Rule("transformer.joint_attention_dim", ("text_encoder_3.d_model",)),
    _Rule(
        "transformer.pooled_projection_dim",
        ("text_encoder.projection_dim", "text_encoder_2.projection_dim"),
    ),
)
_RULES: Mapping[str, tuple[_Rule, ...]] = {
    "FluxImg2ImgPipeline": _FLUX,
    "FluxPipeline": _FLUX,
    "LatentConsistencyModelPipeline": _SD,
    "StableDiffusion3Img2ImgPipeline": _SD3,
    "StableDiffusion3Pipeline": _SD3,
    "StableDiffusionControlNetPipeline": _SD,
    "StableDiffusionImg2ImgPipeline": _SD,
    "StableDiffusionInpaintPipeline": (_MASKED, _ONE_TEXT),
    "StableDiffusionInstructPix2PixPipeline": (_CHANNELS._replace(factors=((2, 0),)), _ONE_TEXT),
    "StableDiffusionPipeline": _SD,
    "StableDiffusionXLControlNetPipeline": _XL,
    "StableDiffusionXLImg2ImgPipeline": _XL,
    "StableDiffusionXLInpaintPipeline": (_MASKED, _TWO_TEXTS),
    "StableDiffusionXLPipeline": _XL,
}


def pipeline_findings(manifest: Manifest, components: Components) -> Iterator[Finding]:
    """Yield the contradictions between components, and what the pipeline's class lacks."""
    yield from _required(manifest)
    yield from _classes(manifest, components)
    declared = {entry.folder for entry in manifest.entries}
    for rule in _RULES.get(target := manifest.target or "", ()):
        yield from _widths(target, rule, components, declared)
    yield from _variants(manifest, components)


def pipeline_notes(manifest: Manifest) -> Iterator[str]:
    """Yield a sentence for each scheduler whose class the known version of diffusers lacks."""
    for entry in manifest.entries:
        is_scheduler = entry.folder.endswith("scheduler") and entry.library == "diffusers"
        if is_scheduler and entry.kind not in _known()["schedulers"]:
            version = _known()["diffusers"]
            yield f"{entry.folder}: diffusers {version} has no scheduler {quoted(entry.kind)}"


@cache
def _known() -> Mapping[str, Any]:
    """Read what the pipelines of diffusers require, from tools/rebuild_pipelines.py."""
    known: Mapping[str, Any] = json.loads(_DATA.read_text(encoding="utf-8"))
    return known


def _required(manifest: Manifest) -> Iterator[OfFolders]:
    declared = {entry.folder for entry in manifest.entries}
    for name in _known()["required"].get(manifest.target, ()):
        if name not in declared:
            reason = f"{manifest.target} of diffusers needs {name}, and {manifest.file} names none"
            yield MissingComponent(declared_in=manifest.file, folders=(name,), reason=reason)


def _classes(manifest: Manifest, components: Components) -> Iterator[OfKeys]:
    """Yield the components whose config names another class than the manifest."""
    for entry in manifest.entries:
        component = components.get(entry.folder)
        if component is None or entry.library != "diffusers":
            continue
        stated = component.config.get("_class_name")
        kind = entry.kind.removeprefix("Flax")  # flax's classes read the same configs
        if isinstance(stated, str) and stated.removeprefix("Flax") != kind:
            yield ConfigContradiction(
                says=(
                    (manifest.file, entry.folder, value_text(entry.kind)),
                    (component.config_file, "_class_name", value_text(stated)),
                ),
                reason=f"{manifest.file} declares {quoted(entry.kind)} in {named(entry.folder)}, "
                f"and {named(component.config_file)} is of {quoted(stated)}",
                fix=f"upload the {entry.folder} that the pipeline was saved with",
            )


def _widths(
    target: str, rule: _Rule, components: Components, declared: Iterable[str]
) -> Iterator[Finding]:
    """Yield a contradiction if the denoiser's width is not that of the other components."""
    denoiser, _, key = rule.width.partition(".")
    component = components.get(denoiser)
    sources = {
        folder: name
        for folder, _, name in (width.partition(".") for width in rule.summed)
        if folder in declared
    }
    if component is None or not sources or not sources.keys() <= components.keys():
        return
    if key == "cross_attention_dim" and component.config.get("encoder_hid_dim") is not None:
        key = "encoder_hid_dim"  # a projection of the text is in between
        if component.config.get("encoder_hid_dim_type") not in {None, "text_proj"}:
            return
    width = component.config.get(key)
    widths = [_width(components[folder].config, name) for folder, name in sources.items()]
    if type(width) is not int or None in widths:
        return
    yield from disagreement(
        Reading(component.config_file, key, width),
        [
            Reading(components[folder].config_file, name, value)
            for (folder, name), value in zip(sources.items(), widths, strict=True)
            if value is not None
        ],
        f"{target} cannot run",
        f"upload the {denoiser} and the {listed([*sources])} that were trained together",
        rule.factors,
    )


def _width(config: Mapping[str, Any], key: str) -> int | None:
    """Return an integer of a config, or of its text_config as in older configs of CLIP."""
    nested = config.get("text_config")
    inner = nested.get(key) if isinstance(nested, Mapping) else None
    return next((value for value in (config.get(key), inner) if type(value) is int), None)


def _variants(manifest: Manifest, components: Components) -> Iterator[OfFolders]:
    """Yield a finding if no variant, and not the default either, has files for all components."""
    variants = {
        component.folder: {variant_of(name) for name in component.weights}
        for component in components.values()
        if component.weights
    }
    if not variants or set.intersection(*variants.values()):
        return
    every = sorted(set[str | None]().union(*variants.values()), key=lambda one: one or "")
    most = max(every, key=lambda one: sum(one in each for each in variants.values()))
    for folder, stored in variants.items():
        if most not in stored:
            what = f"the variant {most}" if most else "the default"
            others = listed([one or "the default" for one in sorted(stored, key=str)])
            reason = (
                f"{named(folder)} has weights of {others} only, and other components have those of "
                f"{what}: neither from_pretrained nor its variant= finds all of them"
            )
            yield MissingComponent(declared_in=manifest.file, folders=(folder,), reason=reason)


# --- tokenizers and text encoders ---------------------------------------------------------------


def tokenizer_findings(
    folder: str, files: Iterable[CompanionFile], encoder: Snapshot
) -> RepositoryFindings:
    """Compare the ids of the tokenizer in a folder with the rows that its encoder stores."""
    file = encoder.config
    companions = Companions.of(replace(one, name=file_name(one.name)) for one in files)
    case = RepositoryCase(
        names=frozenset(),
        is_complete=False,
        config_file=file.name if file else "config.json",
        config=file.values if file else {},
        kind=None,
        is_custom=False,
        target=None,
        stored=contents(encoder).tensors,
        expected=tuple[ExpectedTensor],
        companions=companions,
    )
    findings = tuple(
        replace(
            finding,
            says=tuple(
                (f"{folder}/{name}" if name in companions.files else name, key, value)
                for name, key, value in finding.says
            ),
            reason=f"{folder}: {finding.reason}",
        )
        for finding in token_id_findings(case)
    )
    return RepositoryFindings(
        findings, tuple(f"{folder}: {line}" for line in unchecked_companions(companions))
    )

"""The verdicts of serving engines on an audited checkpoint (`--for`)."""

from collections.abc import Iterator, Sequence
from functools import cache

from msgspec.structs import replace

from auditor.audit.declaration import is_gguf
from auditor.audit.expected import NotImplied, expectation_of
from auditor.audit.gguf_declaration import first_header
from auditor.audit.model import declaration_of
from auditor.audit.options import Options
from auditor.audit.release_verdicts import (
    expanded,
    is_release,
    notes_on_writer,
    of_nested_class,
    release_verdicts,
)
from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.gguf import GgufHeader
from auditor.containers.safetensors import Header
from auditor.containers.weight_formats import Table
from auditor.engines import (
    CONVERTER,
    ENGINES,
    OF_ADAPTERS,
    RUNTIME,
    EngineVerdict,
    ExpectedShapes,
    GgufFile,
    ServedModel,
    judge,
    judge_gguf,
    knowledge_of,
    record_of,
    runtime,
    unknown_verdict,
)
from auditor.engines.packed import LACKING, OTHER, SURPLUS, UNDECLARED, UNLISTED
from auditor.engines.release_data import engine_groups, releases_named
from auditor.errors import CheckpointError, SourceError, UsageError
from auditor.findings import (
    EngineRefuses,
    MetadataContradiction,
    Missing,
    QuantizationData,
    Severity,
    is_of_tensors,
)
from auditor.layouts.declared import declaration
from auditor.layouts.packing import (
    ANOTHER_SCALE,
    FLOATS,
    LACKS,
    NOT_LISTED,
    NOT_PLAIN,
    UNDECLARED_AS,
    Declared,
)
from auditor.messages import listed, meant, quoted
from auditor.reconciler.training_rules import has_parts
from auditor.report import Report, Unaudited
from auditor.values.adding import with_more_findings

ALL = "all"
_FLOATS = frozenset(FLOATS)
# The start of the reason of a fault -> what it comes to for an engine.
_FAULTS = {
    LACKS: LACKING,
    NOT_LISTED: UNLISTED,
    NOT_PLAIN: SURPLUS,
    ANOTHER_SCALE: SURPLUS,
    UNDECLARED_AS: UNDECLARED,
}
# Words of the parser's errors about files that llama.cpp may load.
_OUR_LIMITS = ("expected at most", "nests the arrays", "not UTF-8")


def engines_named(text: str) -> tuple[str, ...]:
    """Return the engines in a list such as `vllm,mlx`, or all of them for `all`.

    Raise UsageError for an engine that nothing is recorded of.
    """
    names = tuple(dict.fromkeys(engine_groups(text)))
    if names == (ALL,):
        return ENGINES
    for name in names:
        if is_release(name):
            releases_named(name)
        elif name not in {*ENGINES, *OF_ADAPTERS}:
            known = (*dict.fromkeys((*ENGINES, *OF_ADAPTERS)), "transformers==VERSION", ALL)
            raise UsageError(
                f"--for {quoted(name)}: an engine is needed, one of {', '.join(known)}"
                f"{meant(name, known)}"
            )
    return names


def unread_verdicts(
    engines: Sequence[str], outcome: Unaudited, snapshot: Snapshot | None
) -> tuple[EngineVerdict, ...]:
    """Return the verdicts on a model that was not read; releases may read its tokenizer."""
    asked = expanded(engines)
    served = [one for one in asked if not is_release(one)]
    return (
        *(unknown_verdict(record_of(engine), outcome.detail) for engine in served),
        *release_verdicts(outcome, snapshot, [one for one in asked if is_release(one)]),
    )


def with_engines(
    outcome: Report | Unaudited, snapshot: Snapshot, options: Options
) -> Report | Unaudited:
    """Return the outcome with a verdict of each requested engine; a refusal is a finding."""
    asked = expanded(options.engines)
    is_asked = any(map(is_release, asked))
    read = of_nested_class(outcome, snapshot, options) if is_asked else outcome
    verdicts = (
        *_verdicts(outcome, snapshot, [one for one in asked if not is_release(one)]),
        *release_verdicts(read, snapshot, [one for one in asked if is_release(one)]),
    )
    refusals = tuple(
        EngineRefuses(engine=one.engine, version=one.version, reason=_refusal(one))
        for one in verdicts
        if one.loads is False or (one.of and not one.applied and one.loads)
    )
    notes = notes_on_writer(read, snapshot) if is_asked else ()
    outcome = replace(outcome, engines=verdicts, notes=(*outcome.notes, *notes))
    return with_more_findings(outcome, refusals, options.ignore) if refusals else outcome


def _refusal(verdict: EngineVerdict) -> str:
    why = "; ".join(verdict.reasons)
    what = "loads it without effect" if verdict.loads else "does not load it"
    return f"{verdict.title} {what}: {why}"


def _verdicts(
    outcome: Report | Unaudited, snapshot: Snapshot, engines: Sequence[str]
) -> Iterator[EngineVerdict]:
    if not engines:
        return
    if snapshot.config is not None and snapshot.config.name == ADAPTER_CONFIG:
        from auditor.audit.served_adapter import adapter_verdicts  # noqa: PLC0415 - few are adapters

        yield from adapter_verdicts(outcome, snapshot, engines)
        return
    if is_gguf(snapshot):
        yield from (_on_gguf(outcome, snapshot, engine) for engine in engines)
        return
    try:
        subject: ServedModel | str = _subject(outcome, snapshot)
    except (CheckpointError, SourceError) as error:
        subject = str(error)
    if isinstance(subject, str):
        yield from (unknown_verdict(record_of(engine), subject) for engine in engines)
    else:
        yield from (_on_folder(engine, subject) for engine in engines)


def _on_folder(engine: str, subject: ServedModel) -> EngineVerdict:
    """Return the verdict on a folder, which llama.cpp loads after its conversion to GGUF.

    The converter does not compare the tensors with the config; llama.cpp does.
    """
    if engine not in ENGINES:
        return unknown_verdict(knowledge_of(engine), "no adapter")
    if engine != RUNTIME:
        return judge(knowledge_of(engine), subject)
    converted = judge(knowledge_of(CONVERTER), subject)
    known, loads = runtime(), converted.loads
    steps = {True: "converts it, and then it loads", None: "was not tried with it"}
    step = f"{converted.title} {steps.get(loads, 'does not convert it')}"
    if loads and not subject.fits:
        loads = None
        step = (
            f"{converted.title} converts it, but its tensors are not those that the config implies"
        )
    reasons = "; ".join((step, *converted.reasons))
    verdict = unknown_verdict(known, f"convert, then load: {reasons}")
    return replace(verdict, loads=loads, additions=converted.additions, scheme=converted.scheme)


def _on_gguf(outcome: Report | Unaudited, snapshot: Snapshot, engine: str) -> EngineVerdict:
    """Return the verdict on a GGUF file, which llama.cpp loads as it is."""
    if engine != RUNTIME:
        return unknown_verdict(knowledge_of(engine), "GGUF files are compared with llama.cpp only")
    known = runtime()
    headers: list[GgufHeader] = []
    refused = [
        finding.reason
        for finding in outcome.findings
        if MetadataContradiction.describes(finding) and "llama.cpp stops" in finding.reason
    ]
    for head in snapshot.headers:
        match head.parsed:
            case GgufHeader() as header:
                headers.append(header)
                refused += header.size_faults
            case error:
                fault = str(error) if isinstance(error, CheckpointError) else "no GGUF file"
                if any(words in fault for words in _OUR_LIMITS):
                    return unknown_verdict(known, fault)
                refused.append(fault)
    if refused:
        return replace(unknown_verdict(known, "; ".join(refused)), loads=False)
    first = first_header(snapshot)
    split = first.integer("split.count") if first else None
    if first is None or len(headers) != (split or 1) or any(one.big_endian for one in headers):
        return unknown_verdict(known, "the files are not those of one model, or are big-endian")
    tensors = [tensor for header in headers for tensor in header.tensors]
    file = GgufFile(
        metadata=first.metadata,
        types=first.types,
        lengths={key: first.length(key) or 0 for key in first.metadata},
        shapes={tensor.name: tensor.shape or () for tensor in tensors},
        dtypes={tensor.name: tensor.dtype or "" for tensor in tensors},
    )
    return judge_gguf(known, file)


def _subject(outcome: Report | Unaudited, snapshot: Snapshot) -> ServedModel | str:
    """Return the checkpoint as an engine finds it, or why no engine was asked.

    Raise CheckpointError or SourceError for a config that cannot be read.
    """
    if has_parts(snapshot):
        return "the weights are in parts that a training left, which have to be joined first"
    if snapshot.config is None:
        return "only a model with config.json in its root folder is compared with engines"
    formats = {head.name.rpartition(".")[2].lower() for head in snapshot.headers}
    declared = declaration_of(snapshot)
    if declared is None:
        return "config.json declares no model"
    config = declared.config
    quantized = declared.quantization or declaration(config.values, snapshot.packing)
    stored = {
        tensor.name: tensor.shape
        for head in snapshot.headers
        if isinstance(head.parsed, Header | Table)
        for tensor in head.parsed.tensors
        if tensor.shape is not None
    }
    packing = ""
    if quantized is not None:
        is_packed = any(QuantizationData.describes(one) for one in outcome.findings)
        flavour = _flavour(quantized, stored, is_packed=is_packed)
        packing = f"{'packed' if is_packed else 'declared'} {flavour}"

    @cache
    def expect(target: str) -> ExpectedShapes | None:
        implied = expectation_of(config, target, stored=lambda: stored)
        if isinstance(implied, NotImplied) or implied.expectation.faults:
            return None
        return ExpectedShapes(implied.expectation.listed)

    return ServedModel(
        config=config.values,
        architectures=config.architectures,
        model_type=config.model_type,
        has_code="auto_map" in config.values,
        stored=stored,
        file_probes=tuple(_file_probes(snapshot, formats, stored)),
        unread=_unread(outcome, snapshot),
        packing_probe=packing,
        method=quantized.method if quantized else "",
        settings=quantized.settings if quantized else {},
        floats=frozenset(
            tensor.name
            for head in snapshot.headers
            if isinstance(head.parsed, Header | Table)
            for tensor in head.parsed.tensors
            if tensor.dtype in _FLOATS
        ),
        packing_faults=_packing_faults(outcome),
        fits=_fits(outcome),
        expect=expect,
    )


def _flavour(quantized: Declared, stored: dict[str, tuple[int, ...]], *, is_packed: bool) -> str:
    """Return a packing as the probes name it: with its format, or what some packers leave out."""
    method, settings = quantized.method, quantized.settings
    if method == "compressed-tensors" and isinstance(settings.get("format"), str):
        return f"{method} {settings['format']}"
    if method == "bitsandbytes" and settings.get("load_in_8bit") is True:
        return f"{method} int8"
    last = {"gptq": "g_idx", "awq": "qzeros", "fp8": "weight_scale_inv"}.get(method)
    if not is_packed:
        return f"{method} static" if settings.get("activation_scheme") == "static" else method
    if last is None or any(name.endswith(f".{last}") for name in stored):
        return method
    return f"{method} static" if method == "fp8" else f"{method} without {last}"


def _fits(outcome: Report | Unaudited) -> bool:
    """Whether every tensor is accounted for, so that the packed ones are the expected ones."""
    return isinstance(outcome, Report) and not any(
        finding.severity is not Severity.INFO and is_of_tensors(finding)
        for finding in outcome.findings
    )


def _packing_faults(outcome: Report | Unaudited) -> frozenset[str]:
    """Return in which ways packed tensors differ from the declared ones: words of `packed.py`."""
    if not isinstance(outcome, Report):
        return frozenset({OTHER})
    return frozenset(
        LACKING
        if Missing.describes(one)
        else next((word for start, word in _FAULTS.items() if one.reason.startswith(start)), OTHER)
        for one in outcome.findings
        if one.severity is not Severity.INFO and is_of_tensors(one)
    )


def _file_probes(
    snapshot: Snapshot, formats: set[str], stored: dict[str, tuple[int, ...]]
) -> Iterator[str]:
    """Yield the probes for what is unusual about the names of files and their index."""
    if "safetensors" not in formats:
        yield "files torch"
        return
    names = {head.name for head in snapshot.headers}
    if not any(name.startswith("model") for name in names):
        yield "files pattern"
    if snapshot.index is None:
        if len(names) > 1:
            yield "files unindexed"
        return
    placed = snapshot.index.as_index.weight_map
    if snapshot.unopened:
        yield "files index absent"
    if placed.keys() == stored.keys():
        return
    if not snapshot.unopened and not placed.keys() <= stored.keys():
        yield "files index wrong"
    if not stored.keys() <= placed.keys():
        yield "files index fewer"


def _unread(outcome: Report | Unaudited, snapshot: Snapshot) -> str:
    """Return why the tensors that an engine would read are not all known; "" if they are."""
    if files := [name for name in outcome.unread if name != outcome.requested]:
        return f"{listed(files)}: not read to the end, or not safe to load"
    opened = {head.name for head in snapshot.headers}
    others = tuple(
        file.name
        for file in snapshot.files
        if file.name.endswith(".safetensors") and "/" not in file.name and file.name not in opened
    )
    if others:
        return f"{listed(others)}: not read, and an engine may read it"
    if any(not isinstance(head.parsed, Header | Table) for head in snapshot.headers):
        return "a weight file has no header that could be read"
    return "shards are absent" if snapshot.unopened else ""

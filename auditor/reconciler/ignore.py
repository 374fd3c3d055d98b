"""Findings that the user asks to leave out of the verdict: `--ignore KIND[:GLOB]`."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple, assert_never, get_args

from msgspec.structs import replace

from auditor.errors import UsageError
from auditor.messages import meant, quoted
from auditor.reconciler.findings import (
    AddedBiasNotZero,
    AddedBiasZero,
    AllZero,
    BadConfig,
    BadDigest,
    BadHeader,
    BadIndex,
    BadQuantization,
    BadSize,
    ChatTemplateBroken,
    ClaimedSize,
    CodeNotThere,
    ConfigContradiction,
    CopyDiffers,
    Duplicate,
    EosDisagrees,
    EqualsBase,
    Finding,
    FormulaDisputed,
    FreshHead,
    GenerationConfigInvalid,
    HubCount,
    Mismatched,
    Missing,
    MissingComponent,
    NewlyInitialized,
    NoOpAdapter,
    NotFinite,
    OtherWeights,
    PaddedDtype,
    ProcessorMissing,
    QuantizationData,
    Renamed,
    RepeatedLayers,
    SpecialIdBeyondVocabulary,
    StoredBuffer,
    TiedCopyDiffers,
    TiedWeight,
    TokenBeyondEmbedding,
    Unexpected,
    UnknownConfigKey,
    Unsafe,
    UntrainedRows,
    Unused,
    WrongDtype,
    WrongTotal,
)
from auditor.reconciler.findings.of_repository import name_of_key

KINDS: tuple[str, ...] = tuple(sorted({kind.kind for kind in get_args(Finding)}))


class Ignore(NamedTuple):
    """A kind of finding and the names (tensors, or files) that it is not wanted for."""

    kind: str
    glob: str

    @classmethod
    def parse(cls, text: str) -> "Ignore":
        kind, _, glob = text.partition(":")
        if kind not in KINDS:
            known = f"; kinds are {', '.join(KINDS)}"
            raise UsageError(f"--ignore {quoted(text)}: no such kind{meant(kind, KINDS)}{known}")
        return cls(kind, glob or "*")


def split(
    findings: Iterable[Finding], ignore: tuple[Ignore, ...]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """The findings that stand, and those that are ignored; one may fall in two by its names."""
    stand: list[Finding] = []
    ignored: list[Finding] = []
    for finding in findings:
        globs = tuple(item.glob for item in ignore if item.kind == finding.kind)

        def unwanted(name: str, globs: tuple[str, ...] = globs) -> bool:
            return any(fnmatchcase(name, glob) for glob in globs)

        if not globs or not any(map(unwanted, finding.names)):
            stand.append(finding)
        elif all(map(unwanted, finding.names)) and ("*" in globs or not _unnamed(finding)):
            ignored.append(finding)
        else:
            ignored.append(_named(_only(finding, unwanted)))
            stand.append(_only(finding, lambda name: not unwanted(name)))
    return tuple(stand), tuple(ignored)


def _unnamed(finding: Finding) -> int:
    """Names that the finding counts and does not have: no glob but `*` is known to fit them."""
    return finding.more if isinstance(finding, Unexpected) else 0


def _named(finding: Finding) -> Finding:
    """The finding of its names alone; what it does not name stays with the other part."""
    if isinstance(finding, Unexpected):
        return replace(finding, more=0, more_parameters=0)
    return finding


def _only(  # noqa: C901, PLR0911, PLR0912 - one return for each shape of evidence
    finding: Finding, wanted: Callable[[str], bool]
) -> Finding:
    """The part of a finding that is about the wanted names."""
    match finding:
        case Missing() | NewlyInitialized():
            kept = tuple(item for item in finding.tensors if wanted(item.name))
            return replace(finding, tensors=kept)
        case (
            Unexpected()
            | Unused()
            | StoredBuffer()
            | QuantizationData()
            | BadQuantization()
            | WrongDtype()
            | AllZero()
            | NoOpAdapter()
            | FreshHead()
            | UntrainedRows()
            | PaddedDtype()
            | RepeatedLayers()
            | AddedBiasZero()
            | AddedBiasNotZero()
        ):
            stored = tuple(item for item in finding.tensors if wanted(item.name))
            return replace(finding, tensors=stored)
        case NotFinite():
            counted = [
                (item, count)
                for item, count in zip(finding.tensors, finding.counts, strict=True)
                if wanted(item.name)
            ]
            return replace(
                finding,
                tensors=tuple(item for item, _ in counted),
                counts=tuple(count for _, count in counted),
            )
        case Duplicate() | TiedCopyDiffers():
            both = [
                (item, of)
                for item, of in zip(finding.tensors, finding.of, strict=True)
                if wanted(item.name)
            ]
            return replace(
                finding, tensors=tuple(item for item, _ in both), of=tuple(of for _, of in both)
            )
        case TiedWeight():
            ties = [
                (item, to)
                for item, to in zip(finding.tensors, finding.to, strict=True)
                if wanted(item.name)
            ]
            return replace(
                finding, tensors=tuple(item for item, _ in ties), to=tuple(to for _, to in ties)
            )
        case Mismatched() | Renamed():
            pairs = tuple(pair for pair in finding.pairs if wanted(pair.stored.name))
            return replace(finding, pairs=pairs)
        case OtherWeights() | EqualsBase():
            return replace(finding, files=tuple(filter(wanted, finding.files)))
        case HubCount() | ClaimedSize():
            return finding  # it has one name
        case MissingComponent():
            return replace(finding, folders=tuple(filter(wanted, finding.folders)))
        case FormulaDisputed():
            kept_disputes = tuple(item for item in finding.disputes if wanted(item.name))
            return replace(finding, disputes=kept_disputes)
        case (
            BadHeader()
            | BadIndex()
            | BadSize()
            | BadDigest()
            | WrongTotal()
            | BadConfig()
            | Unsafe()
            | CopyDiffers()
        ):
            names = tuple(filter(wanted, finding.tensors))
            hidden = tuple(item for item in finding.hidden if wanted(item.name))
            return replace(finding, tensors=names, hidden=hidden)
        case (
            TokenBeyondEmbedding()
            | SpecialIdBeyondVocabulary()
            | EosDisagrees()
            | ChatTemplateBroken()
            | ConfigContradiction()
            | GenerationConfigInvalid()
            | UnknownConfigKey()
            | CodeNotThere()
            | ProcessorMissing()
        ):
            said = tuple(one for one in finding.says if wanted(name_of_key(one)))
            return replace(finding, says=said)
        case _:
            assert_never(finding)

"""The closed set of findings, one class for each kind, because each carries different evidence.

The first sentence of a class's docstring is the meaning of the kind, the paragraph `To do:` the
advice; README's table and the rules in SARIF are printed from them.

Every finding has `names` (sorted), `parameters` (the learned numbers that it concerns), `explains`
(its signed share of parameters stored minus parameters expected) and a `reason`. The `explains` of
all findings of a report add up to its difference: law 3.
"""

from auditor.reconciler.findings.evidence import (
    MOST_NAMED,
    MatchedPair,
    OfExpected,
    OfFile,
    OfPairs,
    OfStored,
    Severity,
    by_name,
)
from auditor.reconciler.findings.of_files import (
    BadConfig,
    BadDigest,
    BadHeader,
    BadIndex,
    BadSize,
    CopyDiffers,
    MissingComponent,
    OtherWeights,
    Unsafe,
    WrongTotal,
)
from auditor.reconciler.findings.of_repository import (
    ChatTemplateBroken,
    ClaimedSize,
    CodeNotThere,
    ConfigContradiction,
    EosDisagrees,
    GenerationConfigInvalid,
    HubCount,
    OfCount,
    OfIds,
    OfKeys,
    ProcessorMissing,
    SpecialIdBeyondVocabulary,
    TokenBeyondEmbedding,
    UnknownConfigKey,
)
from auditor.reconciler.findings.of_tensors import (
    BadQuantization,
    DisputedTensor,
    Duplicate,
    FormulaDisputed,
    Mismatched,
    Missing,
    NewlyInitialized,
    QuantizationData,
    Renamed,
    StoredBuffer,
    TiedWeight,
    Unexpected,
    Unused,
    WrongDtype,
)
from auditor.reconciler.findings.of_values import (
    AddedBiasNotZero,
    AddedBiasZero,
    AllZero,
    EqualDuplicate,
    EqualsBase,
    FreshHead,
    NoOpAdapter,
    NotFinite,
    PaddedDtype,
    RepeatedLayers,
    TiedCopyDiffers,
    UntrainedRows,
)

__all__ = [
    "MOST_NAMED",
    "AddedBiasNotZero",
    "AddedBiasZero",
    "AllZero",
    "BadConfig",
    "BadDigest",
    "BadHeader",
    "BadIndex",
    "BadQuantization",
    "BadSize",
    "ChatTemplateBroken",
    "ClaimedSize",
    "CodeNotThere",
    "ConfigContradiction",
    "CopyDiffers",
    "DisputedTensor",
    "Duplicate",
    "EosDisagrees",
    "EqualDuplicate",
    "EqualsBase",
    "Finding",
    "FormulaDisputed",
    "FreshHead",
    "GenerationConfigInvalid",
    "HubCount",
    "MatchedPair",
    "Mismatched",
    "Missing",
    "MissingComponent",
    "NewlyInitialized",
    "NoOpAdapter",
    "NotFinite",
    "OfCount",
    "OfFile",
    "OfIds",
    "OfKeys",
    "OtherWeights",
    "PaddedDtype",
    "ProcessorMissing",
    "QuantizationData",
    "Renamed",
    "RepeatedLayers",
    "Severity",
    "SpecialIdBeyondVocabulary",
    "StoredBuffer",
    "TiedCopyDiffers",
    "TiedWeight",
    "TokenBeyondEmbedding",
    "Unexpected",
    "UnknownConfigKey",
    "Unsafe",
    "UntrainedRows",
    "Unused",
    "WrongDtype",
    "WrongTotal",
    "by_name",
    "count_of",
    "is_of_repository",
    "is_of_tensors",
]

Finding = (
    Missing
    | NewlyInitialized
    | Unexpected
    | Unused
    | StoredBuffer
    | QuantizationData
    | BadQuantization
    | Duplicate
    | EqualDuplicate
    | WrongDtype
    | Mismatched
    | Renamed
    | TiedWeight
    | OtherWeights
    | EqualsBase
    | FormulaDisputed
    | BadHeader
    | BadIndex
    | BadSize
    | BadDigest
    | WrongTotal
    | HubCount
    | ClaimedSize
    | BadConfig
    | Unsafe
    | CopyDiffers
    | MissingComponent
    | ChatTemplateBroken
    | CodeNotThere
    | ConfigContradiction
    | EosDisagrees
    | GenerationConfigInvalid
    | ProcessorMissing
    | SpecialIdBeyondVocabulary
    | TokenBeyondEmbedding
    | UnknownConfigKey
    | NotFinite
    | AllZero
    | NoOpAdapter
    | TiedCopyDiffers
    | FreshHead
    | UntrainedRows
    | PaddedDtype
    | RepeatedLayers
    | AddedBiasNotZero
    | AddedBiasZero
)


def is_of_tensors(finding: Finding) -> bool:
    """Whether the finding's names are stored or expected tensors of one checkpoint and class."""
    return isinstance(finding, OfExpected | OfStored | OfPairs)


def is_of_repository(finding: Finding) -> bool:
    """Whether the finding concerns companion files, keys of the config or published counts.

    A declared adapter that is missing belongs to them.
    """
    return isinstance(finding, OfKeys | OfCount | MissingComponent)


def count_of(finding: Finding) -> int:
    """The number of names that a finding concerns, including those that it does not list."""
    return len(finding.names) + (finding.more if isinstance(finding, Unexpected) else 0)

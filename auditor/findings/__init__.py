"""The kinds of findings, one class for each, because each has different evidence.

The first sentence of a class's docstring is the meaning of the kind, the paragraph `To do:` the
advice; README's table and the rules in SARIF are printed from them.

Law 3: the `explains` of a report's findings add up to stored minus expected parameters.
"""

# ruff: noqa: I001 - one import for each module; `as` exports a name

from auditor.findings import of_engines, of_files, of_repository, of_tensors, of_values
from auditor.findings.evidence import (
    MOST_NAMED as MOST_NAMED,
    Finding as Finding,
    FindingKind as FindingKind,
    MatchedPair as MatchedPair,
    OfExpected as OfExpected,
    OfFile as OfFile,
    OfPairs as OfPairs,
    OfStored as OfStored,
    Severity as Severity,
    by_name as by_name,
)
from auditor.findings.of_engines import EngineRefuses as EngineRefuses
from auditor.findings.of_files import (
    AdapterBeside as AdapterBeside,
    BadConfig as BadConfig,
    BadDigest as BadDigest,
    BadHeader as BadHeader,
    BadIndex as BadIndex,
    BadSize as BadSize,
    CopyDiffers as CopyDiffers,
    MissingComponent as MissingComponent,
    OtherWeights as OtherWeights,
    Unsafe as Unsafe,
    WrongTotal as WrongTotal,
)
from auditor.findings.of_repository import (
    ChatTemplateBroken as ChatTemplateBroken,
    ClaimedSize as ClaimedSize,
    CodeNotThere as CodeNotThere,
    ConfigContradiction as ConfigContradiction,
    ConfigOverwritten as ConfigOverwritten,
    ChatTurnsWrong as ChatTurnsWrong,
    EosDisagrees as EosDisagrees,
    GenerationConfigInvalid as GenerationConfigInvalid,
    HubCount as HubCount,
    OfCount as OfCount,
    OfIds as OfIds,
    OfKeys as OfKeys,
    ProcessorMissing as ProcessorMissing,
    ProcessorUnknown as ProcessorUnknown,
    SpecialIdBeyondVocabulary as SpecialIdBeyondVocabulary,
    TokenBeyondEmbedding as TokenBeyondEmbedding,
    TokenizerNote as TokenizerNote,
    UnknownConfigKey as UnknownConfigKey,
)
from auditor.findings.of_tensors import (
    BadQuantization as BadQuantization,
    DisputedTensor as DisputedTensor,
    Duplicate as Duplicate,
    FormulaDisputed as FormulaDisputed,
    Mismatched as Mismatched,
    Missing as Missing,
    NewlyInitialized as NewlyInitialized,
    QuantizationData as QuantizationData,
    Renamed as Renamed,
    StoredBuffer as StoredBuffer,
    TiedWeight as TiedWeight,
    Unexpected as Unexpected,
    Unused as Unused,
    UnusedHead as UnusedHead,
    WrongDtype as WrongDtype,
)
from auditor.findings.of_values import (
    AddedBiasNotZero as AddedBiasNotZero,
    AddedBiasZero as AddedBiasZero,
    AllZero as AllZero,
    ConstantMatrix as ConstantMatrix,
    CopiedModules as CopiedModules,
    DifferingDuplicate as DifferingDuplicate,
    EqualDuplicate as EqualDuplicate,
    EqualsBase as EqualsBase,
    FreshHead as FreshHead,
    HeadEqualsEmbedding as HeadEqualsEmbedding,
    IdleModules as IdleModules,
    MeanRows as MeanRows,
    MislabeledDtype as MislabeledDtype,
    NoOpAdapter as NoOpAdapter,
    NotFinite as NotFinite,
    OfValues as OfValues,
    Outlier as Outlier,
    PaddedDtype as PaddedDtype,
    PartZero as PartZero,
    RepeatedLayers as RepeatedLayers,
    Subnormal as Subnormal,
    TiedCopyDiffers as TiedCopyDiffers,
    Untrained as Untrained,
    UntrainedRows as UntrainedRows,
)

FINDING_KINDS: tuple[type[FindingKind], ...] = tuple(
    value
    for module in (of_tensors, of_files, of_repository, of_engines, of_values)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, FindingKind)
    if value.__module__ == module.__name__ and "kind" in vars(value)
)


def is_of_tensors(finding: Finding) -> bool:
    """Whether the finding's names are names of stored or expected tensors."""
    return isinstance(finding, OfExpected | OfStored | OfPairs)


def is_of_repository(finding: Finding) -> bool:
    """Whether the finding concerns companion files, components, config keys or published counts.

    Findings about an adapter next to the model are included.
    """
    return isinstance(finding, OfKeys | OfCount | MissingComponent | AdapterBeside)

"""The sources of expectations: closed forms, then generated forms, then the oracle.

A closed form computes the tensors of a class from its config, as a generated form does for the
configs that it covers; the oracle runs the library itself. Only this module uses all of them.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from auditor.analytic import Config, Expectation, ExpectedTensor, Role, catalogue, generated
from auditor.analytic.auto_classes import is_auto
from auditor.analytic.config_classes import FaultyConfigError, fault_sentence
from auditor.analytic.expectation import ModuleFormula, Written
from auditor.analytic.kv_cache import KVCache, generates
from auditor.analytic.repository_loader import MODULES, Loader, expect_module
from auditor.analytic.target import Classes, Refusal, TargetChoice, choose
from auditor.analytic.tree_expectation import Sibling
from auditor.errors import CheckpointError, Reason, SourceError, UsageError
from auditor.extras import LIBRARIES, install
from auditor.findings import DisputedTensor, FormulaDisputed, OfDisputes
from auditor.messages import meant, quoted
from auditor.names.parts import modules_above
from auditor.reconciler.matching import Places
from auditor.reconciler.reconcile import FamilyExpectations
from auditor.tensors import natural_key

if TYPE_CHECKING:
    from auditor.oracle.client import Oracle


def _needed(*extras: str) -> str:
    """Return the start of a sentence about what these libraries could do if they were installed."""
    libraries = dict.fromkeys(library for extra in extras for library in LIBRARIES[extra])
    return f"with {' and '.join(libraries)} installed,"


def config_faults(expectation: Expectation) -> tuple[str, ...]:
    """Return one sentence for each fault of the config that makes the class impossible to build."""
    return tuple(fault_sentence(fault, expectation.target) for fault in expectation.faults)


def config_reasons(error: CheckpointError) -> tuple[str, ...]:
    """Return the reasons why a config implies no tensors, one sentence for each."""
    if isinstance(error, FaultyConfigError):
        return tuple(fault_sentence(fault, error.target) for fault in error.faults)
    return (str(error),)


class ExpectationSource(Classes, Protocol):
    """A source that computes expected tensors from a config, for some classes."""

    def expect(self, config: Config, target: str, /) -> Expectation: ...

    def sibling(self, config: Config, target: str, /) -> Sibling: ...


class Implied(NamedTuple):
    """The expectation of a config for the target class."""

    expectation: Expectation
    family: FamilyExpectations
    choice: TargetChoice | None = None  # None for modules and adapters
    where: Places | None = None  # of the stored names, if some were looked up


class NotImplied(NamedTuple):
    """The reason why a config implies no tensors, and the target class if one was chosen."""

    error: CheckpointError | SourceError
    choice: TargetChoice | None = None


def _oracle(library: str = "transformers") -> "Oracle | None":
    """Return the oracle of a library if it is installed."""
    from auditor.oracle import client  # noqa: PLC0415 - 10 ms, and most audits have a closed form

    return client.available_oracle(library)


def measured_cache(config: Config, target: str) -> KVCache | None:
    """Return the KV cache that the class fills in transformers; None if it is not known."""
    oracle = _oracle() if generates(target) else None
    return oracle.cache(config, target) if oracle else None


def oracle_of_type(model_type: str) -> "Oracle | None":
    """Return the oracle of transformers if it is installed and has the model type."""
    oracle = None if "/" in model_type else _oracle()
    return oracle if oracle and oracle.siblings(model_type) else None


def classes_of_type(model_type: str) -> tuple[str, ...]:
    """Return a model type's classes with closed forms, else the oracle's, else generated ones."""
    closed = catalogue.siblings(model_type)
    oracle = None if closed else _oracle()
    return closed or (oracle or generated).siblings(model_type)


def expectation_of(
    config: Config,
    target: str | None,
    *,
    loader: Loader | None = None,
    stored: Callable[[], Collection[str] | None] = tuple,
) -> Implied | NotImplied:
    """Return the expectation of the first source that has the architecture.

    `stored` returns the names in the files, or None without files; they decide whether a head that
    the config does not tie is a separate tensor.
    """
    of_library = library_class(config)
    if of_library and target in {None, of_library.name}:
        return _of_library(config, of_library)
    implied = _implied(config, target, loader)
    if isinstance(implied, NotImplied):
        return implied
    separate_heads = untied_heads(config, implied.expectation, stored)
    if not separate_heads:
        return implied
    untied = _implied(replace(config, separate_head=True), target, loader)
    if isinstance(untied, NotImplied):
        return untied
    tied = {one.name for one in untied.expectation.tensors if one.role is Role.TIED}
    expectation = with_untied(untied.expectation, tied & {*separate_heads})
    return untied._replace(expectation=expectation, choice=implied.choice)


def _implied(config: Config, target: str | None, loader: Loader | None) -> Implied | NotImplied:
    """Return the expectation of the first source that covers the class and the config."""
    closed = _expect_by(catalogue, config, target, loader)
    if isinstance(closed, Implied) or not _is_unknown(closed.error):
        return closed
    learned = _expect_by(generated, config, target, loader)
    if isinstance(learned, Implied):
        return learned
    # a generated form that was chosen names the key that it does not cover
    refused = learned if learned.choice and _is_unknown(learned.error) else closed
    oracle = _oracle()
    if oracle is None:
        hint = f"{_needed('oracle')} transformers builds it if it has the class"
        error = SourceError(Reason.UNKNOWN_ARCHITECTURE, f"{refused.error}; {hint}")
        return NotImplied(error, refused.choice)
    second = _expect_by(oracle, config, target, loader)
    return second if second.choice else second._replace(choice=refused.choice)


def _is_unknown(error: CheckpointError | SourceError) -> bool:
    return isinstance(error, SourceError) and error.reason is Reason.UNKNOWN_ARCHITECTURE


def expectation_of_module(config: Config, kind: str) -> Implied | NotImplied:
    """Return the expectation of a sentence-transformers module, whose class modules.json names."""
    if kind not in MODULES:
        detail = f"no closed form is known for {quoted(kind)} of sentence-transformers"
        return NotImplied(SourceError(Reason.UNKNOWN_ARCHITECTURE, detail))
    try:
        expectation = expect_module(config, kind)
    except CheckpointError as error:
        return NotImplied(error)
    return Implied(expectation, FamilyExpectations(declared=expectation, siblings=lambda: ()))


# `norm_type` of an older config -> the class as which diffusers loads Transformer2DModel.
OLDER_CLASSES = MappingProxyType(
    {"ada_norm_single": "PixArtTransformer2DModel", "ada_norm_zero": "DiTTransformer2DModel"}
)
WRAPPER = "timm_wrapper"  # the model type of transformers' classes around a network of timm


class LibraryClass(NamedTuple):
    """A class of a library whose configs differ from those of transformers."""

    library: str  # "diffusers", "open_clip", "timm" (its architectures), or "transformers"
    name: str


def library_class(config: Config) -> LibraryClass | None:
    """Return the class that a config of another library declares; None for other configs.

    transformers writes neither `_class_name`, `architecture` nor `model_cfg`, except for its
    wrapper of timm; diffusers, timm and open_clip write neither model_type nor architectures.
    """
    model_type, declared = (config.values.get(key) for key in ("model_type", "architectures"))
    if model_type == WRAPPER and isinstance(declared, list):
        wrapped = [name for name in declared[:1] if isinstance(name, str)]
        return LibraryClass("transformers", wrapped[0]) if wrapped else None
    if model_type is not None or declared:
        return None
    if isinstance(config.values.get("model_cfg"), Mapping):
        from auditor.analytic import open_clip  # noqa: PLC0415 - few are of open_clip

        return LibraryClass("open_clip", open_clip.class_name(config))
    norm = config.values.get("norm_type")
    if config.values.get("_class_name") == "Transformer2DModel" and isinstance(norm, str):
        return LibraryClass("diffusers", OLDER_CLASSES.get(norm, "Transformer2DModel"))
    keys = {"_class_name": "diffusers", "architecture": "timm"}
    names = ((library, config.values.get(key)) for key, library in keys.items())
    return next((LibraryClass(each, name) for each, name in names if isinstance(name, str)), None)


def _of_library(config: Config, of: LibraryClass) -> Implied | NotImplied:
    """Return the expectation for a class of another library, from a form or the oracle."""
    try:
        expectation = _expect_of_library(config, of)
    except (CheckpointError, SourceError) as error:
        return NotImplied(error)
    return Implied(expectation, FamilyExpectations(declared=expectation, siblings=lambda: ()))


def _expect_of_library(config: Config, of: LibraryClass) -> Expectation:
    try:
        return _expect_by_form(config, of)
    except SourceError as error:
        reason = str(error)
    if of.library == "open_clip":  # it has no oracle
        detail = f"{reason}: its tensors are counted, not compared"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)
    oracle = _oracle(of.library)
    if oracle is None:
        extras = ("oracle", "timm") if of.library == "transformers" else (of.library,)
        hint = f"{_needed(*extras)} {of.library} builds it if it has it"
        detail = f"{reason}: its tensors are counted, not compared; {hint}"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)
    return oracle.expect(config, of.name)


def _expect_by_form(config: Config, of: LibraryClass) -> Expectation:
    """Return the expectation of a closed or a generated form; raise SourceError without one."""
    if of.library == "diffusers":
        from auditor.analytic import diffusion  # noqa: PLC0415 - few are of diffusers

        try:
            return diffusion.expect_diffusers(config, of.name)
        except SourceError:
            if not generated.types(of.name):
                raise
        return generated.expect(config, of.name)
    if of.library == "open_clip":
        from auditor.analytic import open_clip  # noqa: PLC0415 - few are of open_clip

        return open_clip.expect_open_clip(config, of.name)
    from auditor.analytic import timm_table  # noqa: PLC0415 - few are of timm

    expect = timm_table.expect_timm if of.library == "timm" else timm_table.expect_wrapped
    return expect(config, of.name)


def _expect_by(
    source: ExpectationSource, config: Config, target: str | None, loader: Loader | None
) -> Implied | NotImplied:
    """Return the expectation of one source, or why the config implies no tensors."""
    choice: TargetChoice | None = None
    try:
        target_choice = choose(config, target, source, loader)
        if isinstance(target_choice, Refusal):
            return NotImplied(SourceError(target_choice.reason, target_choice.detail))
        choice = target_choice
        expectation = source.expect(choice.kind.config, choice.target)
        declared = expectation
        if choice.declared != choice.target:
            declared = source.expect(choice.of_declared.config, choice.declared)
    except (CheckpointError, SourceError) as error:  # a tower's type may be unknown
        return NotImplied(error, choice)

    related_types = choice.related_types

    def siblings() -> tuple[Sibling, ...]:
        """Return the other classes of the family, which are built only if a tensor needs them."""
        by_type = (_siblings(source, kind.config, kind.model_type) for kind in related_types)
        return tuple(chain.from_iterable(by_type))

    family = FamilyExpectations(
        declared=declared, siblings=siblings, unused_modules=choice.unused_modules
    )
    return Implied(expectation, family, choice)


def _siblings(source: ExpectationSource, config: Config, model_type: str) -> Iterator[Sibling]:
    for name in source.siblings(model_type):
        try:
            yield source.sibling(config, name)
        except CheckpointError:
            continue  # this config makes the class invalid
        except SourceError as error:
            if error.reason is Reason.TOO_LARGE:
                return  # another class would take as long


# --- requests by name -------------------------------------------------------------------------


def require_known_class(target: str) -> None:
    """Raise UsageError if no source has the class; auto classes are not checked without a model."""
    if catalogue.is_known(target) or is_auto(target) or generated.types(target):
        return
    oracle = _oracle()
    if oracle is None:
        hint = f"{_needed('oracle')} the classes of transformers are known, too"
    elif not oracle.types(target):
        hint = f"{oracle.name} has no such model class"
    else:
        return
    library_classes = oracle.class_names() if oracle else ()  # listing them takes a second
    suggestion = meant(target, {*catalogue.class_names(), *library_classes})
    listing_hint = "audit architectures lists what is"
    raise UsageError(
        f"no closed form is known for {quoted(target)}{suggestion}; {listing_hint}; {hint}"
    )


def require_oracle() -> None:
    """Raise UsageError if no oracle can give a second opinion."""
    if _oracle() is None:
        raise UsageError(f"a second opinion needs torch and transformers: {install('oracle')}")


class Opinion(NamedTuple):
    """The result of a second opinion."""

    findings: tuple[OfDisputes, ...] = ()
    unchecked: tuple[str, ...] = ()  # why it was impossible, one sentence each


def second_opinion(config: Config, expectation: Expectation) -> Opinion:
    """Compare a closed form with the oracle."""
    of_library = library_class(config)
    library = of_library.library if of_library else "transformers"
    oracle = None if library == "open_clip" else _oracle(library)
    if oracle is None or expectation.by == "oracle":
        return Opinion(unchecked=("a second opinion: only one source knows this class",))
    try:
        second = oracle.expect(config, expectation.target)
    except (CheckpointError, SourceError) as error:
        return Opinion(unchecked=(f"a second opinion: {error}",))
    learned = {one.name for one in expectation.tensors if one.role is Role.PARAMETER}
    second = with_untied(second, untied_heads(config, second, lambda: learned))
    return Opinion(findings=tuple(formula_disputes(expectation, second)))


def formula_disputes(expectation: Expectation, second: Expectation) -> Iterator[OfDisputes]:
    """Yield a finding for each kind of difference: names, shapes, roles, ties, parameter count.

    The closed form may have more optional tensors, which other versions of the library stored.
    """
    ours = {tensor.name: tensor for tensor in expectation.tensors}
    theirs = {tensor.name: tensor for tensor in second.tensors}
    whose = second.library or "the oracle"
    groups: dict[str, list[DisputedTensor]] = {}
    for name in sorted({*ours, *theirs}, key=natural_key):
        dispute = DisputedTensor(name=name, closed_form=ours.get(name), oracle=theirs.get(name))
        reason = _reason(dispute, whose)
        if reason is not None:
            groups.setdefault(reason, []).append(dispute)
    for reason, disputes in groups.items():
        yield FormulaDisputed(target=expectation.target, disputes=tuple(disputes), reason=reason)
    if expectation.parameters != second.parameters:
        reason = (
            f"{expectation.parameters:,} parameters by the closed form, "
            f"{second.parameters:,} by {whose}"
        )
        yield FormulaDisputed(target=expectation.target, disputes=(), reason=reason)


def _reason(dispute: DisputedTensor, whose: str) -> str | None:
    """Return a clause that states both sides of a dispute; None if there is no contradiction."""
    ours, theirs = dispute.closed_form, dispute.oracle
    if ours == theirs:
        return None
    if theirs is None:
        is_optional = ours is None or ours.role.optional
        return None if is_optional else f"the closed form has it, {whose} does not"
    if ours is None:
        return f"{whose} has it, the closed form does not"
    if ours.shape != theirs.shape:
        return f"{ours.shape} by the closed form, {theirs.shape} by {whose}"
    return f"{_role(ours)} by the closed form, {_role(theirs)} by {whose}"


def _role(tensor: ExpectedTensor) -> str:
    return f"tied to {tensor.tied_to}" if tensor.tied_to else tensor.role.value


# --- stored heads that the class ties to the embedding --------------------------------------------

# The config classes of T5 and its relatives force tie_word_embeddings to true. Checkpoints of T5
# v1.1 declare false and store both the head and the embedding, and loading keeps both; if only one
# is stored, loading ties the other to it.
_INPUTS = re.compile(r"(embed\w*|shared|wte)\.weight$")  # input embeddings are always tied


def untied_heads(
    config: Config, expectation: Expectation, stored: Callable[[], Collection[str] | None]
) -> tuple[str, ...]:
    """Return the names of tied heads that are separate tensors, stored beside their embeddings.

    The embedding may be stored under the name of another tensor that is tied to it. `stored` is
    called only if there is a tied head. If it returns None, the config decides.
    """
    if not config.denies_ties:
        return ()
    tied = [tensor for tensor in expectation.listed.others if tensor.role is Role.TIED]
    heads = [tensor for tensor in tied if not _INPUTS.search(tensor.name)]
    stored_names = stored() if heads else ()
    if stored_names is None:
        return tuple(head.name for head in heads)
    inputs = {one.tied_to for one in tied if one not in heads and one.name in stored_names}
    return tuple(
        head.name
        for head in heads
        if head.name in stored_names and (head.tied_to in stored_names or head.tied_to in inputs)
    )


def with_untied(expectation: Expectation, names: Collection[str]) -> Expectation:
    """Return the expectation with the tied tensors in `names` counted as separate tensors."""
    separate_tensors = [tensor for tensor in expectation.tensors if tensor.name in names]
    elements = sum(tensor.elements for tensor in separate_tensors)
    tensors = tuple(
        tensor._replace(role=Role.PARAMETER, tied_to=None) if tensor.name in names else tensor
        for tensor in expectation.tensors
    )
    modules = dict(expectation.modules)
    for tensor in separate_tensors:
        for prefix in modules_above(tensor.name):
            if prefix in modules:
                modules[prefix] = _plus(modules[prefix], tensor.elements)
    total = _plus(ModuleFormula(expectation.parameters, expectation.formula), elements)
    return replace(
        expectation,
        listed=Written(tensors=tensors, modules=MappingProxyType(modules)),
        parameters=total.parameters,
        formula=total.formula,
    )


def _plus(formula: ModuleFormula, elements: int) -> ModuleFormula:
    """Add elements to a formula; a formula without symbols becomes the sum as a number."""
    total = formula.parameters + elements
    if formula.formula == str(formula.parameters):
        return ModuleFormula(total, str(total))
    return ModuleFormula(total, f"{formula.formula} + {elements}")

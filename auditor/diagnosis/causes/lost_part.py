"""lost-part: a declared tower (vision, audio, decoder, projector) or some layers are absent.

So are tensors of some names, such as `q_norm.weight`, in all layers, or some tensors of names that
other layers store. No tensor of the part is stored, and nothing else is missing. A class of the
model type without the part also explains the files; for lost layers there is no such class.

To do: Save the complete model again, or upload the file that contains the part; or declare a class
without it.
"""

import re
from collections.abc import Iterator

from auditor.analytic.config_keys import value_at
from auditor.diagnosis.case import Case, Proposal
from auditor.diagnosis.causes.other_class import other_classes
from auditor.messages import quoted
from auditor.names.kinds import absent_modules, numbered, numbers, outermost

CAUSE = "lost-part"
_MOST_PARTS = 3  # the most absent parts of one model
_NUMBER = re.compile(r"\.\d+\.")
_BETWEEN = re.compile(r"(projector|merger|resampler|connector|aligner|adapter)$")
_MOST_KINDS = 4  # the most names that all layers lack
_NAMED_ALONE = 3  # as many missing tensors the finding itself names
_DEEPEST = 3  # the most segments in the absent part's name


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with the missing tensors added, if they are complete parts or layers."""
    if not case.missing or case.unmatched or _is_of_another_width(case):
        return
    yield from _lost_layers(case)
    yield from _lost_kinds(case)
    yield from _lost_here_and_there(case)
    parts = absent_modules(case.missing.names, _spellings(case), _DEEPEST)
    if not 0 < len(parts) <= _MOST_PARTS or not any(_is_tower(part, case) for part in parts):
        return
    names = " and ".join(f"{quoted(part)} ({count:,} tensors)" for part, count in parts.items())
    verb, them = ("is", "it") if len(parts) == 1 else ("are", "them")
    yield Proposal(
        cause=CAUSE,
        change=case.adding_missing(),
        summary=f"{names} {verb} declared, and nothing of {them} is stored",
        fix=f"save the whole model again, or upload the file that holds {them}; or "
        f"{_way_out(case)}",
        evidence=(f"no stored name begins with {next(iter(parts))}", "all else is stored"),
    )


def _is_of_another_width(case: Case) -> bool:
    """Return whether most stored tensors have other lengths than expected."""
    pairs = ((one.stored.shape, one.expected.shape) for one in case.mismatched)
    other = sum(sorted(stored or ()) != sorted(expected) for stored, expected in pairs)
    return 2 * other > len(case.shapes)


def _way_out(case: Case) -> str:
    """Return the remedy: declare a class that fits, or the language model's config and class."""
    if case.target is None and (others := other_classes(case)):
        return f'set architectures to ["{others[0]}"]'
    inner = value_at(case.config, "text_config.model_type")
    classes = case.classes(inner) if isinstance(inner, str) else ()
    alone = next((name for name in classes if name.endswith("ForCausalLM")), None)
    if alone is None:
        return "take the config of a model without it"
    return f'take its text_config as the config, with architectures ["{alone}"]'


def _lost_layers(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with the missing layers, if no layer is stored only in part."""
    lists = partial_lists(case)
    if not lists or numbers(case.missing.kinds).keys() != lists.keys():
        return
    outside = [name for name in case.missing.names if not outermost(name)]
    lost = [named_layers(one, away, here) for one, (here, away) in lists.items()]
    lost += [f"{len(outside):,} other tensors"] if len(outside) > _MOST_PARTS else outside
    yield Proposal(
        cause=CAUSE,
        change=case.adding_missing(),
        summary=f"the files lack {' and '.join(lost)}, lost when the files were written",
        fix="convert or save the complete model again; numbering the other layers anew would make "
        "a shorter model, which loads and computes something else",
        evidence=("all other layers are stored completely",),
    )


def partial_lists(case: Case) -> dict[str, tuple[set[int], set[int]]]:
    """Return {list: numbers of its stored layers and of its missing layers}, sorted by name.

    Return {} if a layer is stored only in part.
    """
    stored, missing = numbers(case.stored.kinds), numbers(case.missing.kinds)
    lists = {one: (stored[one], missing[one]) for one in sorted(missing) if one in stored}
    return {} if any(here & away for here, away in lists.values()) else lists


def named_layers(before: str, some: set[int], others: set[int]) -> str:
    """Return some layers of a list as text: `layers 0-3 of 12 in model.layers`."""
    return f"{numbered('layer', some, len(some | others))} in {before.removesuffix('.')}"


def _lost_kinds(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with the missing tensors, if all layers lack them and nothing else."""
    stored = {kind.pattern for kind in case.stored.kinds}
    kinds = case.missing.kinds
    are_new = all(kind.places and kind.pattern not in stored for kind in kinds)
    if len(kinds) > _MOST_KINDS or not are_new:
        return
    within = (kind.pattern.partition(".0.")[2] for kind in kinds)
    names = sorted({name.replace(".0.", ".N.") for name in within})
    yield Proposal(
        cause=CAUSE,
        change=case.adding_missing(),
        summary=f"all layers lack {' and '.join(map(quoted, names))} ({len(case.missing):,} "
        "tensors): they were lost when the files were written, or the model never had them",
        fix="convert or save the complete model again; or take the config of a model without them, "
        "if the weights are of one",
        evidence=("no layer stores them", "all else is stored"),
    )


def _lost_here_and_there(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with the missing tensors, if other layers store most of their names."""
    stored = {kind.pattern: len(kind.names) for kind in case.stored.kinds}
    # Experts that all layers lack are not counted: the config may have too many.
    in_layers = (kind for kind in case.missing.kinds if len(kind.places) == 1)
    kinds = [kind for kind in in_layers if kind.pattern in stored]
    alike, count = sum(len(kind.names) for kind in kinds), len(case.missing)
    if case.mismatched or count <= _NAMED_ALONE or 2 * alike <= count:
        return
    others = sum(stored[kind.pattern] for kind in kinds)
    yield Proposal(
        cause=CAUSE,
        change=case.adding_missing(),
        summary=f"{count:,} tensors are absent here and there, such as {quoted(kinds[0].names[0])}:"
        f" other layers store {others:,} tensors of such names, so they were lost when the files "
        "were written",
        fix="convert or save the complete model again; save_pretrained leaves out tensors that "
        "share their memory with another one",
        evidence=(f"other layers store {alike:,} of the {count:,} names", "all else is stored"),
    )


def _is_tower(part: str, case: Case) -> bool:
    """Whether the part has layers of its own, or connects two towers."""
    within = (name[len(part) :] for name in case.missing.names if name.startswith(f"{part}."))
    return bool(_BETWEEN.search(part)) or any(_NUMBER.search(name) for name in within)


def _spellings(case: Case) -> Iterator[str]:
    """Yield the stored names, each with and without the base model's prefix."""
    yield from case.shapes
    prefix = f"{case.base_prefix}." if case.base_prefix else ""
    for name in case.unpacked_on_disk.shapes:
        yield f"{prefix}{name}"
        yield name.removeprefix(prefix)

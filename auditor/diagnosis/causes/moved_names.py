"""wrapper-prefix: names have the prefix of the wrapper in which the model was saved.

moved-names: a run of name segments is added, missing or another one, in all names or in one part of
the model, such as `model.language_model.visual` for `model.visual`.

A wrapper may also be a key of a training checkpoint that contains the state dict: loaders read the
file as a whole.

To do: Rename the tensors as the class does, or save the model that is inside the wrapper.
"""

from collections.abc import Iterator, Mapping

from auditor.checkpoint.change import Change
from auditor.diagnosis.alignment import Choice, Kinds, NameEdit, Rule, choices, renames_by_rule
from auditor.diagnosis.case import Case, Proposal, once
from auditor.findings import QuantizationData, StoredBuffer, Unexpected, Unused, UnusedHead
from auditor.messages import listed, quoted
from auditor.names.kinds import NameKind, chosen_of, kinds_of

WRAPPER, MOVED = "wrapper-prefix", "moved-names"
_SAVED_FROM = {
    "_orig_mod": "the state dict of a compiled model was saved",
    "module": "the state dict of a DistributedDataParallel model was saved",
    "_fsdp_wrapped_module": "the state dict of an FSDP model was saved",
    "_fpw_module": "the state dict of a FairScale FSDP model was saved",
    "_checkpoint_wrapped_module": "checkpointed modules were saved with their wrappers",
    "_forward_module": "the state dict of a Lightning model was saved",
    "base_model.model": "the state dict of a PEFT model was saved",
}
_WRAPPED = "the model was saved from within a wrapper"


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield proposals that add segments to names, or remove segments from names."""
    if case.missing:
        yield from _renamed(case, by_replacement=False)
    else:
        yield from _stored_again(case, Kinds(case.unexpected.kinds, case.shapes))


def of_other_modules(case: Case) -> Iterator[Proposal]:
    """Yield proposals that replace segments of names, a larger change than one config key."""
    if case.missing:
        yield from _renamed(case, by_replacement=True)


def _renamed(case: Case, *, by_replacement: bool) -> Iterator[Proposal]:
    """Yield proposals that apply several rules to different names, then proposals with one rule."""
    loose = _loose(case)
    for chosen in _choices(case):
        if any(edit.is_replacement for one in chosen for edit in one.rule) is not by_replacement:
            continue
        by_rule = renames_by_rule(loose, chosen)
        renames = {name: new for names in by_rule.values() for name, new in names.items()}
        all_names = case.shapes.keys() | renames.keys()
        if renames and len({renames.get(name, name) for name in all_names}) == len(all_names):
            yield _proposal(case, by_rule, renames)


@once
def _choices(case: Case) -> tuple[tuple[Choice, ...], ...]:
    shapes = {name: one.shape for name, one in case.missing.by_name.items()}
    kinds = Kinds(case.unexpected.kinds, case.shapes), Kinds(case.missing.kinds, shapes)
    return tuple(choices(*kinds, case.base_prefix, _used(case)))


def _used(case: Case) -> tuple[NameKind, ...]:
    """Return the stored names that the class uses, grouped by kind."""
    return chosen_of(case.stored.kinds, case.shapes.keys() - set(case.unexpected.names))


def _stored_again(case: Case, unexpected: Kinds) -> Iterator[Proposal]:
    """Yield the model without unexpected names, if each is a used name with one more segment."""
    others = _used(case)
    for chosen in filter(None, choices(unexpected, Kinds(others, case.shapes), prefix="")):
        [(rule, originals), *more] = renames_by_rule(unexpected.kinds, chosen).items()
        removed, added = zip(*(edit.difference for edit in rule), strict=True)
        is_equal = all(
            case.shapes.get(one) == case.shapes.get(two) for one, two in originals.items()
        )
        if more or any(added) or originals.keys() != set(case.unexpected.names) or not is_equal:
            continue
        (name, original), again = next(iter(originals.items())), f"{len(originals):,} names"
        yield Proposal(
            cause=MOVED,
            change=case.replacing(dict.fromkeys(originals, ())),
            summary=f"{again} repeat names of the class with {listed(removed)} in them ({name} "
            f"for {original}): a part was saved twice, or a second model with it",
            fix=f"save the model without the {again}, once it is clear which of both was trained",
            evidence=(f"{len(originals):,} of {len(case.shapes):,} names, in equal shapes",),
            certain=False,
        )
        return


def _loose(case: Case) -> tuple[NameKind, ...]:
    """Return the names that the class does not use as they are stored, grouped by kind."""
    if case.unnamed:
        return case.stored.kinds
    rows = (Unexpected, Unused, UnusedHead, StoredBuffer, QuantizationData)
    kinds = {row.kind for row in rows}
    names = {one for found in case.report.findings if found.kind in kinds for one in found.names}
    return chosen_of(case.stored.kinds, names) if names <= case.shapes.keys() else kinds_of(names)


# --- explanations --------------------------------------------------------------------------------


def _proposal(
    case: Case, by_rule: Mapping[Rule, Mapping[str, str]], renames: Mapping[str, str]
) -> Proposal:
    words = [_words(case, rule, names) for rule, names in by_rule.items() if names]
    edits = [(edit, names) for rule, names in by_rule.items() for edit in rule]
    is_reading = any(edit.is_replacement for edit, _ in edits)
    return Proposal(
        cause=WRAPPER if all(_is_wrapper(case, *one) for one in edits) else MOVED,
        change=Change(renames=renames),
        summary="; ".join(summary for summary, _ in words),
        fix="; ".join(fix for _, fix in words),
        evidence=(f"{len(renames):,} of {len(case.shapes):,} names",),
        either=" and ".join(_in_short(*edit.difference) for edit, _ in edits),
        certain=not is_reading,
        is_reading=is_reading,
    )


def _in_short(removed: str, added: str) -> str:
    if removed and added:
        return f"{quoted(added)} for {quoted(removed)}"
    return f"{quoted(removed)} stripped" if removed else f"{quoted(added)} put in"


def _is_wrapper(case: Case, edit: NameEdit, names: Mapping[str, str]) -> bool:
    """Whether the edit removes a known wrapper, most names' prefix, or segments of all names."""
    removed, added = edit.difference
    if added or _saved_from(edit) != _WRAPPED:
        return not added
    is_prefix = edit.before == () and 4 * len(names) > 3 * len(case.shapes)
    is_of_all = case.shapes.keys() <= names.keys() and all(removed in name for name in names)
    return is_prefix or is_of_all


def _words(case: Case, rule: Rule, names: Mapping[str, str]) -> tuple[str, str]:
    """Return the summary and the remedy for a rule."""
    count, every = f"{len(names):,}", f"{len(case.shapes):,}"
    removed, added = zip(*(edit.difference for edit in rule), strict=True)
    if not any(added):
        return _words_of_removed(case, rule, names)
    if any(removed):
        old, new = (
            " and ".join(quoted(text) if text else "nothing" for text in texts)
            for texts in (removed, added)
        )
        have = "every name has" if count == every else f"{count} of {every} names have"
        return (
            f"{have} {old} where the class has {new}",
            f"write {new} for {old} in {count} names",
        )
    text, before = added[0], "".join(rule[0].before or ()).replace("0.", "N.")
    if before:
        return (
            f"{count} names lack {quoted(text)} after {quoted(before)}",
            f"put {quoted(text)} after {quoted(before)} in the {count} names",
        )
    part = "that of a part of the model that was saved alone"
    return (
        f"{count} names lack the prefix {quoted(text)}, {part}",
        f"put {quoted(text)} before the {count} names",
    )


def _words_of_removed(case: Case, rule: Rule, names: Mapping[str, str]) -> tuple[str, str]:
    """Return the summary and the remedy for segments that names have in excess."""
    count, every = len(names), len(case.shapes)
    prefix = " and ".join(edit.difference[0] for edit in rule)
    if prefix.startswith("("):
        parts = prefix.split(".")
        key = quoted(".".join(part.strip("()") for part in parts if part.startswith("(")))
        inner = ".".join(part for part in parts if not part.startswith("("))
        without = f", without {inner} before its names" if inner else ""
        summary = f"the state dict lies under {key} in its file, as training scripts save it, and "
        summary += "from_pretrained takes the whole file for the state dict"
        return summary, f"save what lies under {key} alone{without}"
    inside = not all(name.startswith(prefix) for name in names)
    shown = " and ".join(quoted(edit.difference[0]) for edit in rule)
    one, many = ("contains", "contain") if inside else ("begins with", "begin with")
    whose = f"every name {one}" if count == every else f"{count:,} of {every:,} names {many}"
    strip = f"strip {shown} from the {count:,} names"
    if not all(_is_wrapper(case, edit, names) for edit in rule):
        name, new = next(iter(names.items()))
        return f"{whose} {shown} where the class does not ({name} for {new})", strip
    why, remedy = (
        " and ".join(dict.fromkeys(map(_saved_from, rule))),
        "save the model that is inside",
    )
    if inside and case.is_adapter:
        why = "as a PeftModel has them in memory: PEFT takes the file for an adapter called "
        why += f"{quoted(prefix.removesuffix('.'))} at most, and transformers for none"
        remedy = "save by PeftModel.save_pretrained"
    return f"{whose} {shown} ({why})", f"{strip}, or {remedy}"


def _saved_from(edit: NameEdit) -> str:
    """Return the text that explains the removed wrapper, or each wrapper if they are nested."""
    wrappers = edit.difference[0].removesuffix(".")
    parts = (wrappers,) if wrappers in _SAVED_FROM else wrappers.split(".")
    known = [_SAVED_FROM[part] for part in parts if part in _SAVED_FROM]
    return " and ".join(known) if len(known) == len(parts) else _WRAPPED

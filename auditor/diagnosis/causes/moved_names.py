"""wrapper-prefix: names behind the prefix of whatever the model was wrapped in when saved.

Names of a state dict below a key of a training checkpoint are too: loaders take the whole file.

moved-names: a run of name segments is added, missing or another one, in all names or in one part of
the model, such as `model.language_model.visual` for `model.visual`.

To do: Rename the tensors as the class does, or save the model that is inside the wrapper.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from auditor.diagnosis.alignment import Edit, Kinds, Rule, renames_by_rule, rules, rules_together
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes import _of_adapters
from auditor.diagnosis.changes import with_names
from auditor.diagnosis.name_kinds import NameKind, chosen_of, kinds_of
from auditor.messages import quoted
from auditor.reconciler.findings import QuantizationData, StoredBuffer, Unexpected, Unused

WRAPPER, MOVED = "wrapper-prefix", "moved-names"
_PROPOSED = 4  # rules that become undoings
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


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the names after several rules that serve different names, then after single rules."""
    if not (case.unexpected and case.missing):
        return
    unexpected = Kinds(case.unexpected_kinds, case.shapes)
    missing = Kinds(
        case.missing_kinds, {name: one.shape for name, one in case.lacking_named.items()}
    )
    together = rules_together(unexpected, missing)
    single = islice(rules(unexpected, missing), _PROPOSED)
    loose = _loose(case)
    for chosen in dict.fromkeys((together, *((rule,) for rule in single))):
        by_rule = renames_by_rule(loose, chosen)
        renames = {name: new for names in by_rule.values() for name, new in names.items()}
        if renames and _is_injective(case, renames):
            yield _undoing(case, by_rule, renames)


def _loose(case: Case) -> tuple[NameKind, ...]:
    """Return the kinds of names that the class does not use under their stored name."""
    if case.unnamed or len(case.unexpected) == len(case.shapes):
        return case.stored_kinds
    kinds = Unexpected | Unused | StoredBuffer | QuantizationData
    findings = (one for one in case.report.findings if isinstance(one, kinds))
    names = frozenset(name for one in findings for name in one.names)
    return chosen_of(case.stored_kinds, names) if names <= case.shapes.keys() else kinds_of(names)


def _is_injective(case: Case, renames: Mapping[str, str]) -> bool:
    """Whether all names stay different from each other."""
    names = case.shapes.keys() | renames.keys()
    return len({renames.get(name, name) for name in names}) == len(names)


# --- explanations --------------------------------------------------------------------------------


def _undoing(
    case: Case, by_rule: Mapping[Rule, Mapping[str, str]], renames: Mapping[str, str]
) -> Undoing:
    words = [_words(case, rule, names) for rule, names in by_rule.items() if names]
    edits = [edit for rule in by_rule for edit in rule]
    return Undoing(
        cause=WRAPPER if all(_is_wrapper(case, edit) for edit in edits) else MOVED,
        snapshot=with_names(case.snapshot, renames),
        renames=renames,
        summary="; ".join(summary for summary, _ in words),
        fix="; ".join(fix for _, fix in words),
        evidence=(f"{len(renames):,} of {len(case.shapes):,} names",),
        certain=not any(edit.is_replacement for edit in edits),
    )


def _is_wrapper(case: Case, edit: Edit) -> bool:
    """Whether the edit strips a prefix, a known wrapper, or segments that all names have."""
    removed, added = edit.difference
    is_known = _saved_from(edit) != _WRAPPED
    return not added and (edit.before == () or is_known or _is_everywhere(case, removed))


def _is_everywhere(case: Case, text: str) -> bool:
    return all(text in name for name in case.unexpected)


def _words(case: Case, rule: Rule, names: Mapping[str, str]) -> tuple[str, str]:
    """Return what a rule shows to be wrong, and how to correct it."""
    count, every = len(names), len(case.shapes)
    removed, added = zip(*(edit.difference for edit in rule), strict=True)
    if not any(added):
        return _words_of_removed(case, rule, names)
    edit = rule[0]
    if any(removed):
        pairs = list(zip(removed, added, strict=True))
        old = " and ".join(f"{one or 'nothing'}" for one, _ in pairs)
        new = " and ".join(f"{other or 'nothing'}" for _, other in pairs)
        have = "every name has" if count == every else f"{count:,} of {every:,} names have"
        return (
            f"{have} {old} where the class has {new}",
            f"write {new} for {old} in {count:,} names",
        )
    if not edit.before:
        part = ", that of a part of the model that was saved alone"
        text = quoted(added[0])
        return (
            f"{count:,} names lack the prefix {text}{part}",
            f"put {added[0]} before the {count:,} names",
        )
    before = "".join(edit.before).replace("0.", "N.")
    return (
        f"{count:,} names lack {quoted(added[0])} after {quoted(before)}",
        f"put {added[0]} after {before} in the {count:,} names",
    )


def _words_of_removed(case: Case, rule: Rule, names: Mapping[str, str]) -> tuple[str, str]:
    """Return the sentence and the remedy of segments that names have too many."""
    count, every = len(names), len(case.shapes)
    prefix = " and ".join(edit.difference[0] for edit in rule)
    if prefix.startswith("("):
        keys = ".".join(part.strip("()") for part in prefix.split(".") if part.startswith("("))
        summary = f"the state dict lies under {quoted(keys)} in its file, as training scripts save "
        summary += "it, and from_pretrained takes the whole file for the state dict"
        fix = f"save what lies under {quoted(keys)} alone"
        inner = ".".join(part for part in prefix.split(".") if not part.startswith("("))
        return summary, fix + (f", without {inner} before its names" if inner else "")
    inside = not all(name.startswith(prefix) for name in names)
    one, many = ("contains", "contain") if inside else ("begins with", "begin with")
    whose = f"every name {one}" if count == every else f"{count:,} of {every:,} names {many}"
    strip = f"strip {prefix} from the {count:,} names"
    if inside and all(_saved_from(edit) == _WRAPPED for edit in rule):
        if _of_adapters.is_adapter(case):
            name = quoted(prefix.removesuffix("."))
            why = "as a PeftModel has them in memory: PEFT takes the file for an adapter called "
            why += f"{name} at most, and transformers for none"
            return f"{whose} {prefix} ({why})", f"{strip}, or save by PeftModel.save_pretrained"
        if not all(_is_wrapper(case, edit) for edit in rule):
            return f"{whose} {prefix} where the class does not", strip
    why = " and ".join(dict.fromkeys(map(_saved_from, rule)))
    return f"{whose} {prefix} ({why})", f"{strip}, or save the model that is inside"


def _saved_from(edit: Edit) -> str:
    """Return the explanation of a wrapper, or of each of nested wrappers if all are known."""
    wrappers = edit.difference[0].removesuffix(".")
    parts = (wrappers,) if wrappers in _SAVED_FROM else wrappers.split(".")
    known = [_SAVED_FROM[part] for part in parts if part in _SAVED_FROM]
    return " and ".join(known) if len(known) == len(parts) else _WRAPPED

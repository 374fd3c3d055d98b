"""wrapper-prefix: names behind the prefix of whatever the model was wrapped in when saved.

To do: Strip the prefix from the names, or save the model that is inside the wrapper.
"""

from collections.abc import Callable, Iterator
from functools import partial

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import with_names
from auditor.messages import quoted

CAUSE = "wrapper-prefix"
_SAVED_FROM = {
    "_orig_mod": "the state dict of a compiled model was saved",
    "module": "the state dict of a DistributedDataParallel model was saved",
    "_fsdp_wrapped_module": "the state dict of an FSDP model was saved",
    "_checkpoint_wrapped_module": "checkpointed modules were saved with their wrappers",
}
_LONGEST = 4  # parts of a prefix


def undoings(case: Case) -> Iterator[Undoing]:
    """A part that all unexpected names have and no missing one; a prefix that they all lack."""
    if not (case.unexpected and case.missing):
        return
    for part in _foreign_parts(case):
        renames = _renames(case, partial(_without_part, part=part))
        if renames:
            yield _stripped(case, f"{part}.", renames, everywhere=True)
    for prefix in _leading(case.unexpected):
        renames = _renames(case, partial(_without_prefix, prefix=prefix))
        if renames:
            yield _stripped(case, prefix, renames, everywhere=False)
    for prefix in _leading(case.missing):
        unexpected = frozenset(case.unexpected)
        renames = {name: f"{prefix}{name}" for name in unexpected}
        if _collides(case, renames):
            continue
        yield Undoing(
            cause=CAUSE,
            snapshot=with_names(case.snapshot, renames),
            renames=renames,
            summary=f"{len(renames):,} names lack the prefix {quoted(prefix)}, that of a part of "
            "the model that was saved alone",
            fix=f"put {prefix} before the {len(renames):,} names",
            evidence=(f"{len(renames):,} of {len(case.stored):,} names",),
        )


def _foreign_parts(case: Case) -> list[str]:
    """Parts of every unexpected name that are in no missing one, outermost first."""
    first, *others = (name.split(".") for name in case.unexpected)
    wanted = {part for name in case.missing for part in name.split(".")}
    common = set(first).intersection(*others) - wanted
    return [part for part in dict.fromkeys(first) if part in common]


def _leading(names: tuple[str, ...]) -> Iterator[str]:
    """The prefixes that all of the names have, longest last."""
    shared = [name.split(".")[:-1] for name in (min(names), max(names))]
    common: list[str] = []
    for one, other in zip(*shared, strict=False):
        if one != other or one.isdecimal():
            break
        common.append(one)
    for length in range(1, min(len(common), _LONGEST) + 1):
        yield ".".join(common[:length]) + "."


def _without_part(name: str, part: str) -> str:
    return ".".join(one for one in name.split(".") if one != part)


def _without_prefix(name: str, prefix: str) -> str:
    return name.removeprefix(prefix)


def _renames(case: Case, rename: Callable[[str], str]) -> dict[str, str]:
    """The names that become others; none where two would become one."""
    renames = {one.name: rename(one.name) for one in case.stored}
    if _collides(case, renames) or not all(renames.values()):
        return {}
    return {name: other for name, other in renames.items() if name != other}


def _collides(case: Case, renames: dict[str, str]) -> bool:
    after = [renames.get(one.name, one.name) for one in case.stored]
    return len(set(after)) < len({one.name for one in case.stored})


def _stripped(case: Case, prefix: str, renames: dict[str, str], *, everywhere: bool) -> Undoing:
    part = prefix.removesuffix(".")
    why = _SAVED_FROM.get(part, "the model was saved from within a wrapper")
    every = len(renames) == len(case.stored)
    whose = "every name" if every else f"{len(renames):,} of {len(case.stored):,} names"
    inside = everywhere and not all(name.startswith(prefix) for name in renames)
    one, many = ("contains", "contain") if inside else ("begins with", "begin with")
    verb = one if every else many
    return Undoing(
        cause=CAUSE,
        snapshot=with_names(case.snapshot, renames),
        renames=renames,
        summary=f"{whose} {verb} {prefix} ({why})",
        fix=f"strip {prefix} from the {len(renames):,} names, or save the model that is inside",
        evidence=(f"{len(renames):,} of {len(case.stored):,} names",),
    )

"""The edits of names under which stored names become expected ones.

A name is a sequence of segments, each with its separator. A kind of names is a set of names that
differ only in their numbers; its pattern has 0 for each number.

An edit replaces one run of segments: at the start of all names, below one module, or wherever the
run occurs. With an empty run on one side, it only removes or adds segments. Each kind of unexpected
names is compared with the kinds of missing names with which it shares the most segments. The
difference gives edits, and a rule is the edits of one such pair. The rule that turns the names of
the most tensors into expected names is chosen first, then the best rule for the remaining names.
Equal shapes raise the score of a pair, but are not required.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import count, islice, takewhile
from typing import NamedTuple

from auditor.names.kinds import NameKind
from auditor.tensor_roles import role_of

Shape = tuple[int, ...] | None
Segments = tuple[str, ...]

_SEGMENT = re.compile(r"[^./]*[./]|[^./]+$")
_NUMBER = "0."  # a segment that is a number
_MOST_KINDS = 160  # kinds of unexpected names that are compared: those with the most tensors
_MOST_PARTNERS = 2  # kinds of missing names with which an unexpected kind is compared
_MOST_COUNTED = 24  # rules for which the renamed tensors are counted
_MOST_RULES = 3
_MOST_PROPOSED = 4
_OF_ROLES, _OF_EXTENT = 3, 6  # places in a rank: tensors that get another role, segments changed
_RARE = 20  # a rule has to rename more than one in this many unexpected names
_FEW = 2  # a rule for at most this many kinds of names has to fit their shapes too
_OTHER_SHAPE = 0.6  # score of a pair whose shapes differ; 1 if they are equal


class NameEdit(NamedTuple):
    """A run of a name's segments and the run that replaces it; numbers are written as 0."""

    before: Segments | None  # the name's segments before the run; None if the run may be anywhere
    old: Segments
    new: Segments

    @property
    def is_replacement(self) -> bool:
        """Whether the edit gives segments other names, instead of adding or removing some."""
        short, long = sorted((self.old, self.new), key=len)
        rest = iter(long)
        return not all(segment in rest for segment in short)

    @property
    def difference(self) -> tuple[str, str]:
        """The removed text and the added text, without the segments that both have."""
        old, new = self.old, self.new
        while old and new and old[-1] == new[-1]:
            old, new = old[:-1], new[:-1]
        shared = len(shared_start(old, new))
        return "".join(old[shared:]), "".join(new[shared:])

    @property
    def is_slip(self) -> bool:
        """Whether one text is the other with a run of characters more: `to_to_q.` for `to_q.`."""
        short, long = sorted(self.difference, key=len)
        start = len(shared_start(short, long))
        return short[start:] == long[len(long) - len(short) + start :]


Rule = tuple[NameEdit, ...]


class Kinds(NamedTuple):
    """Stored or missing names, grouped by kind, with the shape of each kind's first tensor."""

    kinds: tuple[NameKind, ...]
    shapes: Mapping[str, Shape]

    def shape(self, kind: NameKind) -> Shape:
        return self.shapes.get(kind.names[0])


@lru_cache(maxsize=4096)
def segments(name: str) -> Segments:
    """Return the name's segments, each with its separator: `model.`, `layers.`, `weight`."""
    return tuple(_SEGMENT.findall(name))


class Choice(NamedTuple):
    """A rule, and the patterns of the names that it turns into expected ones."""

    rank: tuple[float, ...]  # descending number of tensors, then the extent of the change
    rule: Rule
    met: frozenset[str]


def choices(
    unexpected: Kinds, missing: Kinds, prefix: str | None, used: Collection[NameKind] = ()
) -> Iterator[tuple[Choice, ...]]:
    """Yield several rules that together rename most unexpected names, then single rules.

    If another rule is as good as one of the several, they are also yielded with it instead. `used`
    are the kinds of the stored names that are expected.
    """
    goal = _Goal(missing, prefix)
    single = _ranked(unexpected.kinds, unexpected, goal)
    together: list[Choice] = []
    with_rivals: list[tuple[Choice, ...]] = []
    kinds, ranked = unexpected.kinds, single
    while ranked and len(together) < _MOST_RULES:
        best = ranked[0]
        with_rivals = [(*others, best) for others in with_rivals]
        if rival := _rival(ranked, best, goal):
            with_rivals.append((*together, rival))
        together.append(best)
        kinds = tuple(kind for kind in kinds if kind.pattern not in best.met)
        ranked = _ranked(kinds, unexpected, goal)
    alone = (one for one in single if one.rank[_OF_ROLES] <= single[0].rank[_OF_ROLES])
    proposed = (tuple(together), *with_rivals, *((one,) for one in islice(alone, _MOST_PROPOSED)))
    for chosen in dict.fromkeys(proposed):
        if not _takes_apart(chosen, (*unexpected.kinds, *used)):
            yield chosen


def _takes_apart(chosen: Iterable[Choice], kinds: Iterable[NameKind]) -> bool:
    """Whether rules move some tensors out of a module whose other tensors keep their names."""
    met = frozenset().union(*(one.met for one in chosen))
    left = [segments(kind.pattern) for kind in kinds if kind.pattern not in met]
    edits = (edit for one in chosen for edit in one.rule if edit.is_replacement)
    return any(
        edit.old[0] in parts if edit.before is None else parts[: len(module)] == module
        for edit in edits
        if len(edit.old) > 1
        for module in [(*(edit.before or ()), edit.old[0])]
        for parts in left
    )


def renames_by_rule(
    kinds: Iterable[NameKind], chosen: Iterable[Choice]
) -> dict[Rule, dict[str, str]]:
    """Return {rule: {stored name: new name}}.

    A name that no rule turns into an expected one is renamed by the first rule that changes it.
    """
    chosen = tuple(chosen)
    renames: dict[Rule, dict[str, str]] = {one.rule: {} for one in chosen}
    for kind in kinds:
        by_fit = sorted(chosen, key=lambda one: kind.pattern not in one.met)
        rule = next((one.rule for one in by_fit if _applied(kind.pattern, one.rule)), None)
        if rule is not None:
            renames[rule].update({name: _applied(name, rule) or name for name in kind.names})
    return renames


# --- rules ---------------------------------------------------------------------------------------


class _Goal:
    """The kinds of missing names, with and without the prefix that loading may add or remove."""

    def __init__(self, missing: Kinds, prefix: str | None) -> None:
        self._prefix = prefix
        self.shapes = {kind.pattern: missing.shape(kind) for kind in missing.kinds}
        bare = {self._bare(one): shape for one, shape in self.shapes.items()}
        self.near = {**bare, **self.shapes}
        self.by_end: defaultdict[Segments, list[Segments]] = defaultdict(list)
        for parts in map(segments, self.shapes):
            for length in (1, 2):
                self.by_end[parts[-length:]].append(parts)

    def _bare(self, pattern: str) -> str:
        """Return the pattern without the base model's prefix (its first segment, if unknown)."""
        if self._prefix is None:
            return pattern.partition(".")[2]
        return pattern.removeprefix(f"{self._prefix}.") if self._prefix else pattern

    def meets(self, pattern: str, shape: Shape) -> float:
        """Return 1 if this pattern and shape are expected, less for another shape, else 0."""
        for spelt in (pattern, self._bare(pattern)):
            if spelt in self.near:
                expected = self.near[spelt]
                return 1 if shape is None or expected in (None, shape) else _OTHER_SHAPE
        return 0

    def partners(self, parts: Segments, shape: Shape) -> list[Segments]:
        """Return the patterns of missing names that share most segments with the name `parts`."""

        def likeness(other: Segments) -> tuple[int, bool, bool, int]:
            name, other_name = "".join(parts), "".join(other)
            has_role = role is not None and _part(other_name) == role
            has_shape, characters = self.shapes[other_name] == shape, _shared_ends(name, other_name)
            return _shared_ends(parts, other), has_shape, has_role, characters

        role = _part("".join(parts))

        known = self.by_end[parts[-2:]] or self.by_end[parts[-1:]]
        return sorted(known, key=likeness, reverse=True)[:_MOST_PARTNERS]


@lru_cache(maxsize=1024)
def _part(name: str) -> str | None:
    """Return the function of the tensor in a transformer, such as the first norm, by its name."""
    role = role_of(name)
    return role and role.part


def _ranked(kinds: Collection[NameKind], stored: Kinds, goal: _Goal) -> list[Choice]:
    """Return the rules that rename more than 1/_RARE of the tensors correctly, the best first."""
    by_size = sorted(kinds, key=lambda kind: -len(kind.names))
    votes: Counter[Rule] = Counter()
    for kind in by_size[:_MOST_KINDS]:
        parts, shape = segments(kind.pattern), stored.shape(kind)
        for partner in goal.partners(parts, shape):
            for rule in dict.fromkeys(_rules_of(parts, partner)):
                votes[rule] += len(kind.names)
    total = sum(len(kind.names) for kind in kinds)
    ranked: list[Choice] = []
    for rule in sorted(votes, key=lambda rule: (-votes[rule], str(rule)))[:_MOST_COUNTED]:
        kind_by_new: dict[str, NameKind] = {}  # a second kind with the same new names would collide
        for kind in by_size:
            if new := _applied(kind.pattern, rule):
                kind_by_new.setdefault(new, kind)
        worth = {new: goal.meets(new, stored.shape(kind)) for new, kind in kind_by_new.items()}
        replaces = any(edit.is_replacement for edit in rule)
        if replaces or sum(map(bool, worth.values())) <= _FEW:
            worth = {  # shapes have to be equal, and known for another name
                new: int(one == 1 and not (replaces and stored.shape(kind_by_new[new]) is None))
                for new, one in worth.items()
            }
        count_by_new = {new: len(kind.names) for new, kind in kind_by_new.items() if worth[new]}
        weight = sum(worth[new] * count for new, count in count_by_new.items())
        if weight * _RARE > total:
            rank = (
                -weight,
                replaces,
                -sum(count for new, count in count_by_new.items() if new in goal.shapes),
                sum(_part(kind_by_new[new].pattern) != _part(new) for new in count_by_new),
                not all(edit.is_slip for edit in rule),
                len(rule),
                sum(len(edit.old) + len(edit.new) for edit in rule),
                any(edit.before is None for edit in rule),
            )
            met = frozenset(kind_by_new[new].pattern for new in count_by_new)
            ranked.append(Choice(rank, rule, met))
    return sorted(ranked, key=lambda one: (one.rank, str(one.rule)))


def _rival(ranked: list[Choice], best: Choice, goal: _Goal) -> Choice | None:
    """Return a rule that renames equally many tensors, but to other expected names."""
    for other in ranked:
        names = ((_applied(one, other.rule), _applied(one, best.rule)) for one in best.met)
        is_as_good = other.rank[:_OF_EXTENT] == best.rank[:_OF_EXTENT]
        if is_as_good and any(new != own and new in goal.shapes for new, own in names):
            return other
    return None


def _rules_of(parts: Segments, partner: Segments) -> Iterator[Rule]:
    """Yield the rules that turn a name into its partner, the most general first."""
    matcher = SequenceMatcher(None, parts, partner, autojunk=False)
    edits = [
        NameEdit(parts[:a], parts[a:b], partner[c:d])
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    ]
    if not 0 < len(edits) <= _MOST_RULES:
        return
    for before, old, new in edits:
        lost = old.count(_NUMBER) - new.count(_NUMBER)
        if lost < 0 or (before and lost):
            return  # a number would be unknown, or several layers would get the same name
    if all(edit.old for edit in edits):
        yield tuple(edit._replace(before=None if edit.before else ()) for edit in edits)
    yield (edits[0],)
    before, old, new = edits[0]
    if before or len(edits) > 1:
        return
    # Loading adds and removes the base model's prefix, which other names may have.
    if old and len(new) == 1:
        yield (NameEdit((), old, ()),)
    if len(old) > 1:
        yield (NameEdit((), old[:-1], new),)


def _applied(name: str, rule: Rule) -> str | None:
    """Return the name, or the pattern of a kind, after the edits; None if none of them applies."""
    changes = 0
    for edit in rule:
        search, text = _substitution(edit)
        name, places = search.subn(text, name)
        changes += places
    return name if changes else None


@lru_cache(maxsize=1024)
def _substitution(edit: NameEdit) -> tuple[re.Pattern[str], str]:
    """Return the regular expression of an edit, and its replacement with the run's numbers."""
    before = "(?<![^./])" if edit.before is None else "^" + _regex(edit.before, r"\d+\.")
    search = re.compile(f"({before})" + _regex(edit.old, r"(\d+)\."))
    numbers = (rf"\g<{group}>." for group in count(2))
    new = (next(numbers) if one == _NUMBER else one.replace("\\", r"\\") for one in edit.new)
    return search, "".join((r"\g<1>", *new))


def _regex(run: Segments, number: str) -> str:
    return "".join(number if one == _NUMBER else re.escape(one) for one in run)


def _shared_ends(one: Sequence[str], other: Sequence[str]) -> int:
    return len(shared_start(one, other)) + len(shared_start(one[::-1], other[::-1]))


def shared_start(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the items at the start of both sequences."""
    return [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]

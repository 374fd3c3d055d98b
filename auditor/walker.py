"""Sums (tallies) over stored tensors: by module prefix at any depth, by dtype, and by file.

The fate of a tensor is a set of bits that the reconciler sets for its status, such as unused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from auditor.tensors import DTYPE_BITS, Depth, StoredTensor, is_float

_USUAL = 128  # characters of a module's name; BERT's longest have 43, a mixture's 60
MAX_DEPTH = 64  # a hostile name of 50,000 dots would have 50,000 prefixes; real names have ten


class Counted(NamedTuple):
    """A stored tensor and its number of parameters: 0 for a buffer or a second copy."""

    tensor: StoredTensor
    parameters: int
    fate: int = 0  # bits that the reconciler defines


def counted_once(
    counted: tuple[tuple[StoredTensor, int, int], ...], shared: Mapping[str, str]
) -> tuple[tuple[StoredTensor, int, int], ...]:
    """Set the elements of tensors that are keys of `shared` to 0: they share bytes with others."""
    if not shared:
        return counted
    return tuple(
        Counted(one._replace(elements=0) if one.name in shared else one, parameters, fate)
        for one, parameters, fate in counted
    )


class Tally(Struct, frozen=True):
    """Sums over a set of stored tensors."""

    tensors: int = 0
    elements: int = 0
    parameters: int = 0
    trainable: int = 0  # parameters of a dtype that a gradient can flow into
    bytes: int = 0  # of tensor data
    fates: int = 0  # the fates of all tensors, combined by bitwise or


class _Kind(NamedTuple):
    """The properties that tensors must share to be summed up together under a prefix."""

    dtype: str  # "" if only an index names the tensors
    file: str
    fate: int


_Sums = list[int]  # tensors, elements, parameters, bytes (if the dtype has no width) of one _Kind
_Totals = list[int]  # tensors, elements, parameters, trainable, bits, fates; all kinds together


class Walk(Struct, frozen=True, kw_only=True, dict=True):
    """The sums of one pass over all stored tensors, from which every tally follows."""

    # By kind and prefix. A tensor counts once, for its deepest listed prefix.
    cells: Mapping[_Kind, Mapping[str, _Sums]]

    @property
    def total(self) -> Tally:
        return self._grouped(lambda _: "").get("", Tally())

    def by_dtype(self, fate: int | None = None) -> Mapping[str, Tally]:
        """Return the tallies by safetensors dtype, sorted, without tensors whose header is unread.

        If a fate is given, only tensors with exactly this fate count.
        """
        tallies = self._grouped(
            lambda kind: kind.dtype if fate is None or kind.fate == fate else ""
        )
        return {dtype: tally for dtype, tally in tallies.items() if dtype}

    def by_file(self) -> Mapping[str, Tally]:
        """Return the tallies by name of the weight file, sorted."""
        return self._grouped(lambda kind: kind.file)

    def by_prefix(self) -> Mapping[str, Tally]:
        """Return the tally of each module prefix down to the depth of the walk, and of the root "".

        `bert.pooler.dense.weight` counts for "", `bert`, `bert.pooler` and `bert.pooler.dense`.
        """
        sums: dict[str, _Totals] = {"": [0] * 6}
        for kind, below in self.cells.items():
            for prefix, found in zip(below, _totals(kind, below.values()), strict=True):
                if prefix in sums:
                    _add(sums[prefix], found)
                else:
                    sums[prefix] = found
        return {
            prefix: Tally(tensors, elements, parameters, trainable, bits // 8, fates)
            for prefix, (tensors, elements, parameters, trainable, bits, fates) in (
                _rolled_up(sums).items()
            )
        }

    @cached_property
    def _kinds(self) -> Mapping[_Kind, _Totals]:
        """The totals of each _Kind over all prefixes, cached because there are many prefixes."""
        return {kind: next(_totals(kind, [_whole(below)])) for kind, below in self.cells.items()}

    def _grouped(self, key: Callable[[_Kind], str]) -> Mapping[str, Tally]:
        sums: dict[str, _Totals] = {}
        for kind, found in self._kinds.items():
            _add(sums.setdefault(key(kind), [0] * 6), found)
        return {name: _tally(sums[name]) for name in sorted(sums)}


class Shallow(NamedTuple):
    """A lower depth for tensors of some fates, whose modules are too many to list."""

    fates: int | None  # bits; None means all fates
    depth: int  # the deepest level that is listed


def walk(
    items: Iterable[tuple[StoredTensor, int, int]],
    *,
    depth: Depth | None = None,
    shallow: Shallow | None = None,
) -> Walk:
    """Sum up the tensors by the prefixes that `depth` lists; None lists all prefixes.

    The items have the fields of `Counted`. Kind and prefix are computed only if they differ from
    those of the previous item, which is rare.
    """
    deepest = Depth(MAX_DEPTH) if depth is None else depth.at_most(MAX_DEPTH)
    fates, up_to = shallow or (0, MAX_DEPTH)
    cells: dict[_Kind, dict[str, _Sums]] = {}
    kind: tuple[str | None, str, int] = (None, "", -1)
    above, below, sums = None, "\0", [0, 0, 0, 0]
    for tensor, parameters, fate in items:
        name = tensor[0]
        if (tensor[1], tensor[4], fate) != kind:
            kind, above, below = (tensor[1], tensor[4], fate), None, "\0"
            dtype, file, _ = kind
            of_kind = cells.setdefault(_Kind(dtype or "", file, fate), {})
            limit = deepest.at_most(up_to) if fates is None or fate & fates else deepest
            uncut = limit.most if limit.layers is None else min(limit.layers, limit.most)
            odd = dtype is not None and dtype not in DTYPE_BITS
        if not name.startswith(below) and (module := name.rpartition(".")[0]) != above:
            above = prefix = module
            level = prefix.count(".") + 1
            if level > uncut:
                prefix = limit.cut(module)
            sums = of_kind.setdefault(prefix, [0, 0, 0, 0])
            # A closed prefix is at the listed depth: deeper modules count for this prefix.
            closed = level == limit.most or prefix != module
            below = f"{prefix}." if closed and prefix else "" if limit.most == 0 else "\0"
        sums[0] += 1
        sums[1] += tensor[3] or 0
        sums[2] += parameters
        if odd and tensor.span is not None:  # 32 numbers of Q4_0 take 18 bytes
            sums[3] += tensor.span.length
    return Walk(cells=cells)


def depth_within(names: Iterable[str], most: int) -> int | None:
    """Return the largest depth with at most `most` modules above names; None if all depths fit.

    200,000 names of forty parts each would be in eight million modules. Long names count more: a
    name of 16 MB with sixty dots at its end would be in sixty modules of 16 MB.
    """
    names = tuple(names)
    room = most * _USUAL
    modules: set[str] = set()
    for name in names:
        module = prefix_at_depth(name.rpartition(".")[0], MAX_DEPTH)
        while module and module not in modules and room >= 0:
            modules.add(module)
            room -= max(len(module), _USUAL)
            module = module.rpartition(".")[0]
        if room < 0:
            break
    else:
        return None
    modules.clear()
    least, depth = 0, MAX_DEPTH + 1
    while depth - least > 1:
        tried = (least + depth) // 2
        if _fits(names, tried, most * _USUAL):
            least = tried
        else:
            depth = tried
    return least


def _fits(names: Iterable[str], depth: int, room: int) -> bool:
    """Return whether the names of modules down to that depth have at most `room` characters in all.

    Only the deepest modules are counted, times the depth: higher levels have no more modules, and
    no longer names.
    """
    cuts: set[str] = set()
    for name in names:
        module = prefix_at_depth(name.rpartition(".")[0], depth)
        if module not in cuts:
            cuts.add(module)
            room -= max(len(module), _USUAL) * depth
            if room < 0:
                return False
    return True


def prefix_at_depth(prefix: str, depth: int) -> str:
    """Return the first `depth` segments of a prefix."""
    return ".".join(prefix.split(".", depth)[:depth]) if prefix.count(".") >= depth else prefix


def _whole(below: Mapping[str, _Sums]) -> _Sums:
    """Add up the sums of one _Kind over all prefixes."""
    return [sum(each) for each in zip(*below.values(), strict=True)]


def _totals(kind: _Kind, sums: Iterable[_Sums]) -> Iterator[_Totals]:
    """Convert the sums of one _Kind to totals, which add trainable parameters and bits."""
    trained, width = is_float(kind.dtype), DTYPE_BITS.get(kind.dtype, 0)
    for tensors, elements, parameters, odd in sums:
        bits = elements * width + 8 * odd
        yield [tensors, elements, parameters, trained * parameters, bits, kind.fate]


def _rolled_up(sums: dict[str, _Totals]) -> dict[str, _Totals]:
    """Add the sums of each prefix to its parent's, the deepest prefixes first."""
    levels: dict[int, list[str]] = {}
    for prefix in sums:
        if prefix:
            levels.setdefault(prefix.count(".") + 1, []).append(prefix)
    for level in range(max(levels, default=0), 0, -1):
        for prefix in levels.get(level, ()):
            above = prefix.rpartition(".")[0]
            if above in sums:
                _add(sums[above], sums[prefix])
            else:
                levels.setdefault(level - 1, []).append(above)
                sums[above] = sums[prefix].copy()
    return sums


def _add(into: _Totals, more: _Totals) -> None:
    into[0] += more[0]
    into[1] += more[1]
    into[2] += more[2]
    into[3] += more[3]
    into[4] += more[4]
    into[5] |= more[5]


def _tally(sums: _Totals) -> Tally:
    tensors, elements, parameters, trainable, bits, fates = sums
    return Tally(tensors, elements, parameters, trainable, bits // 8, fates)

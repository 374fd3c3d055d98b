"""The sizes in Git LFS pointers, compared with those of the tensors that the files should hold."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import NamedTuple

from auditor.analytic import Expectation, ExpectedTensor, Role
from auditor.analytic.listing import inventory
from auditor.analytic.lookup import NameLookup
from auditor.analytic.tree_expectation import Sibling
from auditor.checkpoint.snapshot import Snapshot
from auditor.findings import BadHeader
from auditor.messages import named
from auditor.reconciler.contents import Contents
from auditor.reconciler.index.sums import WIDTHS, last_two_parts
from auditor.reconciler.other_model import HEADER_BYTES, bytes_in
from auditor.reconciler.reconcile import FamilyExpectations, Reconciled

_DTYPES = ("F32", "BF16", "F64")
_ENTRY = 110  # header bytes of a tensor in safetensors, without its name; up to four dimensions
_METADATA = 1024  # bytes of the rest of the header
_BUFFER_BYTES = (1, 4, 8, 2)  # of an element: BOOL masks, F32 inv_freq, I64 position_ids, F16
_MOST_SIBLINGS = 30
_MOST_NAMED = 3  # classes


class _Part(NamedTuple):
    """Tensors that a file may hold besides the parameters, and the bytes of an element."""

    what: str
    elements: int
    widths: tuple[int, ...] = ()  # () for those of the parameters


class _Content(NamedTuple):
    """A reading of what a file holds: the parameters of a class, and further tensors."""

    parameters: int
    tensors: int
    of: str = ""  # the class, if it is not the target
    parts: tuple[_Part, ...] = ()

    def sizes(self, dtype: str) -> Iterator[tuple[int, str]]:
        """Yield each possible number of bytes, with a clause about the further tensors."""
        width = WIDTHS[dtype] // 8
        for widths in product(*(part.widths or (width,) for part in self.parts)):
            taken = [part.elements * each for part, each in zip(self.parts, widths, strict=True)]
            clauses = [
                f"{size:,} bytes of {part.what}"
                for part, size in zip(self.parts, taken, strict=True)
            ]
            text = "".join(f", {clause}" for clause in clauses)
            yield self.parameters * width + sum(taken), text


def pointed_size_note(  # noqa: PLR0913 - what is stored, what is expected, and what is declared
    snapshot: Snapshot,
    contents: Contents,
    reconciled: Reconciled,
    *,
    expectation: Expectation,
    family: FamilyExpectations,
    declared: str | None,
) -> str | None:
    """Return a note on whether the files behind Git LFS pointers have the expected model's size.

    Their sizes are compared with the expected tensors that are in them; then with those and a tied
    head or buffers that older versions saved, and with the parameters of other classes of the type.
    Return None if there are no pointers, or if no index shows whether a tensor is in one of these
    files or in another unread file.
    """
    found = [one for one in reconciled.findings if BadHeader.describes(one) and one.file]
    sizes = {file.name: file.pointed for file in snapshot.headers if file.pointed is not None}
    if contents.holds_unknown and any(item.file not in sizes for item in contents.unread):
        return None
    hidden = [tensor for one in found if one.file in sizes for tensor in one.hidden]
    learned = [tensor for tensor in hidden if tensor.role.learned]
    parameters = sum(tensor.elements for tensor in learned)
    if not parameters:
        return None
    size = sum(sizes.values())
    subject = "the file behind the Git LFS pointer has"
    if len(sizes) > 1:
        subject = f"the {len(sizes):,} files behind Git LFS pointers have"
    is_safetensors = all(name.endswith(".safetensors") for name in sizes)
    entry = max(len(tensor.name) for tensor in hidden) + _ENTRY if is_safetensors else HEADER_BYTES
    first = declared if declared in WIDTHS else "F32"
    dtypes = dict.fromkeys((first, *_DTYPES))
    others: Iterable[_Content] = ()
    if len(learned) == expectation.listed.learned:  # all of the model is in these files
        others = _other_contents(expectation, family, learned)
    fitting: dict[str, str] = {}  # by class: the clause that says how it fits
    for content in chain((_Content(parameters, len(hidden)),), others):
        if fitting and (content.parts or "" in fitting):
            continue  # only classes without further tensors may be as good
        most = _METADATA * len(sizes) + entry * (content.tensors + 8 * len(content.parts))
        for dtype, (taken, further) in _sizes(content, dtypes):
            if 0 <= size - taken <= most:
                width = WIDTHS[dtype] // 8
                header = "a header" if len(sizes) == 1 else "headers"
                differs = declared in WIDTHS and WIDTHS[dtype] != WIDTHS[first]
                but = f"; the config declares {declared}" if differs else ""
                of = f"{content.parameters:,} x {width} bytes ({dtype})"
                rest = f"{header} of {size - taken:,}{but}"
                fitting.setdefault(content.of, f"{of}{{}}{further} and {rest}")
    if fitting:
        best, *as_good = fitting
        also = f" ({', '.join(as_good[:_MOST_NAMED])} would fit too)" if as_good else ""
        whose = f", the parameters of {best}{also}" if best else ""
        return f"{subject} {size:,} bytes, which fits {next(iter(fitting.values())).format(whose)}"
    expected = bytes_in(parameters, first)
    more = "more" if size > expected else "fewer"
    takes = f"the {expected:,} that {parameters:,} parameters take in {first}"
    return f"{subject} {size:,} bytes, {abs(size - expected):,} {more} than {takes}"


def _sizes(content: _Content, dtypes: Iterable[str]) -> Iterator[tuple[str, tuple[int, str]]]:
    return ((dtype, found) for dtype in dtypes for found in content.sizes(dtype))


def _other_contents(
    expectation: Expectation, family: FamilyExpectations, learned: Sequence[ExpectedTensor]
) -> Iterator[_Content]:
    """Yield the class with tied heads and older buffers, then the classes of its family."""
    parameters, count = sum(one.elements for one in learned), len(learned)
    parts = tuple(_parts(expectation.tensors))
    for number in range(1, len(parts) + 1):
        for some in combinations(parts, number):
            yield _Content(parameters, count, parts=some)
    for sibling in family.siblings()[:_MOST_SIBLINGS]:
        tensors = _tensors_of(sibling)
        own = [one for one in tensors if one.role is Role.PARAMETER]
        total = sum(one.elements for one in own)
        yield _Content(total, len(own), of=sibling.target)
        for part in _parts(tensors):
            yield _Content(total, len(own), of=sibling.target, parts=(part,))


def _tensors_of(sibling: Sibling) -> tuple[ExpectedTensor, ...]:
    names = sibling.names
    if isinstance(names, NameLookup):
        return inventory(names.tree, {}).tensors
    return tuple(names.values()) if isinstance(names, Mapping) else ()


def _parts(tensors: Iterable[ExpectedTensor]) -> Iterator[_Part]:
    """Yield the tied tensors and, by the ends of their names, the buffers of older versions."""
    elements: dict[tuple[str, tuple[int, ...]], int] = {}
    for one in tensors:
        if one.role is Role.TIED:
            what, widths = f"{named(one.name)} (which the class ties)", tuple[int, ...]()
        elif one.role is Role.LEGACY and one.elements > 1:
            what, widths = named(last_two_parts(one.name)), _BUFFER_BYTES
        else:
            continue
        elements[what, widths] = elements.get((what, widths), 0) + one.elements
    for (what, widths), count in elements.items():
        yield _Part(what, count, widths)

"""Weight files that could not be read, and the names that an index places in them."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from auditor.analytic import Expectation, ExpectedTensor
from auditor.analytic.catalogue import Sibling
from auditor.layouts.packing import HiddenContent
from auditor.reconciler.findings import BadHeader, BadIndex, BadSize, Unsafe
from auditor.reconciler.matching import Fate, places
from auditor.reconciler.unexpected import identify
from auditor.tensors import StoredTensor


class Unread(NamedTuple):
    """A weight file that could not be read, and the stored names in it."""

    finding: Callable[..., BadHeader | BadIndex | BadSize | Unsafe]
    file: str
    reason: str
    names: frozenset[str] | None  # from the index; None if it may contain anything


class NameWithoutHeader(NamedTuple):
    """The known facts about a stored name without a header."""

    elements: int | None  # of the expected tensors in it; None if nothing is expected
    fate: int
    packed: bool  # or quantization data: its bytes are not those of its elements


def file_that_may_hold(
    unread: tuple[Unread, ...], expectation: Expectation, behind: Mapping[str, HiddenContent]
) -> Callable[[str], str | None]:
    """Return a function from an expected name to the unread file that may contain it."""
    known: dict[str, str] = {}
    anywhere: str | None = None
    for item in unread:
        if item.names is None:
            anywhere = anywhere or item.file
            continue
        names = [piece for name in item.names for piece in _pieces(name, behind)]
        for place in places(expectation).of(names):
            if place.expected is not None:
                known.setdefault(place.expected.name, item.file)
    return lambda name: known.get(name, anywhere)


def names_without_header(
    unread: tuple[Unread, ...],
    expectation: Expectation,
    behind: Mapping[str, HiddenContent],
    siblings: Callable[[], tuple[Sibling, ...]],
) -> Iterator[tuple[str, NameWithoutHeader]]:
    """Yield every name that an index places in an unread file, sorted by name."""
    names = sorted(frozenset(chain.from_iterable(item.names or () for item in unread)))
    hidden = [behind.get(name, HiddenContent((name,), packed=False)) for name in names]
    pieces = dict.fromkeys(chain.from_iterable(held.tensors for held in hidden))
    found = places(expectation).of(pieces) if pieces else ()
    expected = {piece: place.expected for piece, place in zip(pieces, found, strict=True)}
    strange: list[StoredTensor] = []
    for name, held in zip(names, hidden, strict=True):
        item = _without_header(held, expected)
        if item:
            yield name, item
        else:
            strange.append(StoredTensor(name, None, None, None, "", None))
    for one in identify(strange, expectation.loading, siblings) if strange else ():
        yield one.tensor.name, NameWithoutHeader(one.implied, one.fate, packed=False)


def _pieces(name: str, behind: Mapping[str, HiddenContent]) -> tuple[str, ...]:
    return behind[name].tensors if name in behind else (name,)


def _without_header(
    held: HiddenContent, expected: Mapping[str, ExpectedTensor | None]
) -> NameWithoutHeader | None:
    """Sum up the contents of a name; None if the class expects none of them."""
    if not held.tensors:
        return NameWithoutHeader(None, Fate.QUANTIZATION_DATA.value, packed=True)
    known = [tensor for piece in held.tensors if (tensor := expected[piece]) is not None]
    if not known:
        return NameWithoutHeader(None, Fate.UNEXPECTED.value, packed=True) if held.packed else None
    learned = any(tensor.role.learned for tensor in known)
    fate = Fate.EQUAL if learned else Fate.BUFFER
    return NameWithoutHeader(
        sum(tensor.elements for tensor in known), fate.value, packed=held.packed
    )

"""The reader of the modules of words in a checkpoint: see `_qweight`."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import cache
from typing import Generic, TypeVar

from auditor.layouts._left_plain import plain_among_packed
from auditor.layouts._qweight import CONV1D, Parts, Reading, best_reading, lacks_headers, parts_of
from auditor.layouts.packing import (
    Implied,
    LogicalTensor,
    Members,
    PackingLedger,
    Shape,
    Stored,
    tensor_name,
)
from auditor.tensors import StoredTensor

How = TypeVar("How", bound=Hashable)
USUAL = ("qweight", "scales", "qzeros")


class ModuleReader(Generic[How]):
    """Reads modules; modules with equal shapes and equal settings are read once.

    `readings` yields the possible readings of the shapes; they also depend on the settings `How`.
    """

    def __init__(
        self,
        readings: Callable[[Parts, How, Shape | None], Iterable[Reading]],
        implied: Implied,
        *,
        conv1d: bool = True,  # a Conv1D is (in, out) in a plain checkpoint
        rows: bool = False,  # only rows are packed, and their last word may be incomplete
    ) -> None:
        self._implied = implied
        self._conv1d, self._rows = conv1d, rows

        @cache
        def read(parts: Parts, how: How, expected: Shape | None) -> Reading:
            return best_reading(readings(parts, how, expected), expected)

        self._read = read

    def _of(self, module: str, parts: Parts, how: How) -> Reading:
        """Read one module, with the architecture's shape only if the module does not suffice."""
        reading = self._read(parts, how, None)
        conv = self._conv1d and module.rpartition(".")[2] in CONV1D
        partial = self._rows and parts.qweight[0] * parts.word % reading.bits
        if not (conv or partial or reading.complaints):
            return reading
        expected = self._implied(tensor_name(module))
        reading = self._read(parts, how, expected)
        turned = reading.shape[::-1]
        return reading._replace(shape=turned) if conv and expected == turned else reading

    def unpack(  # noqa: PLR0913 - a module, its settings, and under which names its parts are
        self,
        module: str,
        members: Members,
        how: How,
        ledger: PackingLedger,
        *,
        names: tuple[str, str, str] = USUAL,
        notes: Mapping[str, str],
    ) -> Reading | None:
        """Record a module in the ledger, with `notes` for the tensors beside weight and scales.

        Return None if its weight cannot be packed, or only an index names it.
        """
        weight, scales, _ = names
        parts = parts_of(members, *names)
        reading = self._of(module, parts, how) if isinstance(parts, Parts) else None
        if isinstance(parts, str):
            ledger.fault(parts, members[weight])
        else:
            stored = dict(zip(USUAL, names, strict=True))
            for last, reason in reading.complaints if reading is not None else ():
                about = members.get(stored.get(last, last))
                ledger.fault(reason, *([about] if about is not None else []))
            shape, bits = (reading.shape, reading.bits) if reading else (None, 4)
            name = tensor_name(module)
            ledger.tensors.append(LogicalTensor(members[weight], name, shape, f"INT{bits}"))
        group = f", one for each {reading.group:,} inputs of an output" if reading else ""
        for last, reason in {scales: f"scales{group}", **notes}.items():
            if last in members:
                ledger.note(reason, members[last])
        return reading


def note_lacking(
    members: Members, weight: str, needed: Iterable[str], ledger: PackingLedger
) -> None:
    """Report the tensors that are missing to unpack a packed weight."""
    for last in needed:
        if last not in members:
            ledger.lack(f"packed without its {last}", members[weight])


def note_left_plain(
    stored: Stored,
    packed: Collection[str],
    asked: Callable[[Mapping[str, StoredTensor]], Collection[StoredTensor]],
    ledger: PackingLedger,
) -> None:
    """Report plain modules among similar packed ones, because loading looks for a qweight.

    `asked` selects the plain weights that the config does not declare as plain.
    """
    left_plain = asked(plain_among_packed(stored, packed))
    if left_plain:
        reason = "stored plain while other layers are packed here: loading looks for a qweight"
        ledger.fault(reason, *left_plain)


def note_orphans(
    members: Members, lasts: Iterable[str], implied: Implied, ledger: PackingLedger
) -> None:
    """Report tensors for a qweight that is not stored, unless the architecture has that name."""
    for last in lasts:
        if last in members and implied(members[last].name) is None:
            ledger.note(f"{last} of no stored qweight", members[last])
            ledger.lack(f"{last} whose qweight is not stored", members[last])


def telling_modules(stored: Stored) -> Iterable[Members]:
    """The modules that show the layout: those with shapes, or all if none has shapes."""
    packed = [members for members in stored.modules.values() if "qweight" in members]
    return [members for members in packed if not lacks_headers(members)] or packed


def title_of(name: str, packed: Mapping[str, Reading | None]) -> str:
    """The name, the forms, and the settings that the modules share."""
    forms = sorted({reading.form for reading in packed.values() if reading is not None})
    return ", ".join((" ".join((name, *forms)), *settings_text(packed)))


def settings_text(packed: Mapping[str, Reading | None], *, whole: bool = False) -> list[str]:
    """Return `4 bits`, `groups of 64/128`; `whole` if the config makes all inputs one group."""
    readings = [reading for reading in packed.values() if reading is not None]
    if not readings:
        return []
    bits = "/".join(map(str, sorted({one.bits for one in readings})))
    sizes = "/".join(map(str, sorted({one.group for one in readings})[:3]))
    return [f"{bits} bits", "one group" if whole else f"groups of {sizes}"]

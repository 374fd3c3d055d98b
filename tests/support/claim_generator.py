"""Claims with one slip or two, drawn at random: what people get wrong, done on lists of tensors.

Nothing here uses `auditor.claims`: a slip is applied to the names and shapes of an expectation, one
tensor at a time, so that the search is held to something else than itself.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from auditor.analytic import Config, Expectation, Role, catalogue
from auditor.errors import CheckpointError, SourceError

Entry = tuple[str, tuple[int, ...], int]  # name, shape, numbers that are counted

# Keys of configs that differ between published models, and values that they have there.
OTHER_VALUES: dict[str, tuple[int, ...]] = {
    "vocab_size": (21128, 28996, 30522, 32000, 50257, 50265, 119547, 128256, 151936, 250002),
    "hidden_size": (384, 512, 768, 1024, 2048),
    "n_embd": (768, 1024, 1280),
    "d_model": (512, 768, 1024),
    "num_hidden_layers": (6, 8, 12, 16, 24),
    "n_layer": (12, 24, 36),
    "num_layers": (6, 12, 24),
    "intermediate_size": (1536, 2048, 3072, 4096, 8192),
    "d_ff": (1024, 2048, 3072, 4096),
    "max_position_embeddings": (512, 514, 1024, 2048),
    "n_positions": (1024, 2048),
    "type_vocab_size": (1, 2, 4),
}
_NORM = re.compile(r"norm|(^|_)ln(_|\d|$)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A number that is wrong, and why."""

    target: str
    values: dict[str, Any]
    text: str
    number: int
    part: str
    slips: tuple[str, ...]  # sorted
    effects: tuple[tuple[str, int], ...]  # slip, difference; sorted


def claims(count: int, seed: int) -> Iterator[Claim]:
    """So many claims, the same ones for the same seed."""
    draw = random.Random(seed)  # noqa: S311 - they are no secrets
    types = [each for each in catalogue.model_types() if each != "transformer-2017"]
    made = 0
    while made < count:
        found = _claim(draw, types)
        if found is not None:
            made += 1
            yield found


def _claim(draw: random.Random, types: list[str]) -> Claim | None:
    model_type = draw.choice(types)
    target = draw.choice(catalogue.siblings(model_type))
    values = {"model_type": model_type, **_drawn_values(draw, model_type)}
    own = expected(values, target)
    if own is None:
        return None
    wanted = draw.choice((1, 1, 2))
    count = _Count(draw, own, values, target)
    for _ in range(30):
        if len(count.effects) == wanted:
            break
        count.slip(draw.choice(_SLIPS))
    if len(count.effects) != wanted or count.total <= 0 or count.total == own.parameters:
        return None
    if wanted > 1 and count.total in _by_one_slip(own, values):
        return None  # then one is the shorter explanation
    if count.scaled == "binary" and wanted > 1:  # the rounding must not hide the other slip
        other = max(abs(difference) for _, difference in count.effects)
        if other < count.total // 100:
            return None
    return Claim(
        target=target,
        values=values,
        text=count.text(),
        number=count.total,
        part="",
        slips=tuple(sorted(slip for slip, _ in count.effects)),
        effects=tuple(sorted(count.effects)),
    )


def _by_one_slip(own: Expectation, values: dict[str, Any]) -> set[int]:
    """What a count comes to without a module, or as another class."""
    entries = _entries(own)
    below: dict[str, int] = {}
    for name, _, number in entries:
        parts = name.split(".")
        for length in range(1, len(parts)):
            module = ".".join(parts[:length])
            below[module] = below.get(module, 0) + number
    others = (expected(values, name) for name in catalogue.siblings(own.model_type))
    classes = {other.parameters for other in others if other is not None}
    return {own.parameters - number for number in below.values()} | classes


def _drawn_values(draw: random.Random, model_type: str) -> dict[str, int]:
    """Half of the models are not the default's size."""
    defaults = catalogue.family(model_type).defaults
    keys = [key for key in OTHER_VALUES if isinstance(defaults.get(key), int)]
    chosen = draw.sample(keys, min(len(keys), draw.choice((0, 0, 1, 2))))
    return {key: draw.choice(OTHER_VALUES[key]) for key in chosen}


def expected(values: dict[str, Any], target: str) -> Expectation | None:
    try:
        return catalogue.expect(Config(values=values), target)
    except (CheckpointError, SourceError):
        return None


def _entries(expectation: Expectation) -> list[Entry]:
    return [
        (one.name, one.shape, one.elements)
        for one in expectation.tensors
        if one.role is Role.PARAMETER
    ]


class _Count:
    """A count of one model, which slips change."""

    def __init__(
        self, draw: random.Random, own: Expectation, values: dict[str, Any], target: str
    ) -> None:
        self._draw, self._own, self._values, self._target = draw, own, values, target
        self.entries = _entries(own)
        self.effects: list[tuple[str, int]] = []
        self.scaled = ""

    @property
    def total(self) -> int:
        counted = sum(number for _, _, number in self.entries)
        return 4 * counted if self.scaled == "bytes" else counted

    def text(self) -> str:
        if self.scaled == "binary":
            base, letter = (2**30, "B") if self.total >= 10**9 else (2**20, "M")
            return f"{self.total / base:.2f}{letter}"
        return str(self.total)

    def slip(self, name: str) -> None:
        """Make one slip, if it changes anything and was not made before."""
        if any(name == made for made, _ in self.effects):
            return
        kept = (self.entries, self.scaled, self._own, self._target, self._values)
        before = self.total
        getattr(self, "_" + name.replace("-", "_"))()
        if name == "binary-million" and self.scaled == "binary":
            self.effects.append((name, 0))
        elif self.total != before:
            self.effects.append((name, self.total - before))
        else:
            self.entries, self.scaled, self._own, self._target, self._values = kept

    def _keep(self, test: Any) -> None:
        self.entries = [entry for entry in self.entries if test(entry)]

    def _part_left_out(self) -> None:
        modules = {
            ".".join(parts[:length])
            for parts in (name.split(".") for name, _, _ in self.entries)
            for length in range(1, min(len(parts), 3))
            if not any(part.isdecimal() for part in parts[:length])
        }
        if modules:
            module = self._draw.choice(sorted(modules))
            self._keep(lambda entry: not entry[0].startswith(f"{module}."))

    def _one_of_n(self) -> None:
        lists: dict[str, set[int]] = {}
        for name, _, _ in self.entries:
            found = re.match(r"(.*?)\.(\d+)\.", name)
            if found:
                lists.setdefault(found[1], set()).add(int(found[2]))
        several = sorted(module for module, numbers in lists.items() if len(numbers) > 1)
        if not several:
            return
        module = self._draw.choice(several)
        inner = sorted(
            {
                rest
                for name, _, _ in self.entries
                if (rest := self._inside(name, module)) and not rest.isdecimal()
            }
        )
        below = self._draw.choice(["", *inner[:4]])
        kept = min(lists[module])

        def counts(entry: Entry) -> bool:
            found = re.match(rf"{re.escape(module)}\.(\d+)\.(.*)", entry[0])
            if not found or int(found[1]) == kept:
                return True
            return bool(below) and not found[2].startswith(f"{below}.")

        self._keep(counts)

    @staticmethod
    def _inside(name: str, module: str) -> str:
        found = re.match(rf"{re.escape(module)}\.\d+\.([^.]+)\.", name)
        return found[1] if found else ""

    def _no_bias(self) -> None:
        self._keep(lambda entry: not entry[0].endswith("bias") or _of_norm(entry))

    def _no_norm(self) -> None:
        self._keep(lambda entry: not _of_norm(entry))

    def _tied_twice(self) -> None:
        self.entries = self.entries + [
            (one.name, one.shape, one.elements)
            for one in self._own.tensors
            if one.role is Role.TIED and not one.name.endswith("bias")
        ]

    def _untied_once(self) -> None:
        shapes = {shape for name, shape, _ in self.entries if re.search(r"embed|wte", name)}
        self._keep(
            lambda entry: (
                not (
                    re.search(r"(^|\.)(lm_head|embed_out|decoder|output)\.weight$", entry[0])
                    and entry[1] in shapes
                )
            )
        )

    def _buffers_counted(self) -> None:
        self.entries = self.entries + [
            (one.name, one.shape, one.elements)
            for one in self._own.tensors
            if one.role in {Role.BUFFER, Role.LEGACY}
        ]

    def _active_only(self) -> None:
        if self.effects or self._own.active is None:
            return
        self.entries = [("", (), self._own.active.parameters)]

    def _other_class(self) -> None:
        others = [each for each in catalogue.siblings(self._own.model_type) if each != self._target]
        other = expected(self._values, self._draw.choice(others)) if others else None
        if other is not None and not self.effects:
            self._own, self._target, self.entries = other, other.target, _entries(other)

    def _other_config(self) -> None:
        defaults = catalogue.family(self._own.model_type).defaults
        keys = [key for key in OTHER_VALUES if isinstance(defaults.get(key), int)]
        if not keys or self.effects:
            return
        key = self._draw.choice(keys)
        values = {**self._values, key: self._draw.choice(OTHER_VALUES[key])}
        other = expected(values, self._target)
        if other is not None:
            self._own, self._values, self.entries = other, values, _entries(other)

    def _bytes_for_parameters(self) -> None:
        self.scaled = self.scaled or "bytes"

    def _binary_million(self) -> None:
        self.scaled = self.scaled or "binary"


def _of_norm(entry: Entry) -> bool:
    name, shape, _ = entry
    *_, module, _ = ("", *name.split("."))
    return len(shape) == 1 and bool(_NORM.search(module))


# Slips in the order of how often people make them.
_SLIPS = (
    *("part-left-out",) * 4,
    *("one-of-n",) * 3,
    *("no-bias",) * 3,
    *("no-norm",) * 2,
    *("tied-twice",) * 3,
    *("untied-once",) * 3,
    "buffers-counted",
    "active-only",
    *("other-class",) * 2,
    *("other-config",) * 2,
    "bytes-for-parameters",
    "binary-million",
)

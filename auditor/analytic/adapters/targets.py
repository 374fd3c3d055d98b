"""Which modules of the base an adapter's settings choose."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from auditor.analytic.adapters.base import AdaptedModel, AdaptedModule, name_ends_in
from auditor.analytic.adapters.patterns import UnsafeError, suffixes
from auditor.analytic.adapters.settings import (
    AdapterSettings,
    ModuleNames,
    safe_expression,
    unchecked_adapter,
)
from auditor.errors import CheckpointError
from auditor.messages import quoted

# The first number below a name below a name, as peft looks for a layer's.
_NUMBER = re.compile(r".*?\.[^.]*\.(\d+)\.", re.ASCII)
_PLAIN = re.compile(r"[\w.]+")
_SHOWN = 60  # characters of a list of targets in a message
_OUTPUTS = frozenset({"lm_head", "embed_out", "output_projection"})
# What is a classifier's head by its name: all-linear leaves it out.
_CLASSIFIERS = ("score", "classifier")


class Targets:
    """The modules of one base that `target_modules` chooses."""

    def __init__(self, settings: AdapterSettings, base: AdaptedModel) -> None:
        self._settings = settings
        self._base = base

    @cached_property
    def chosen(self) -> tuple[str, ...]:
        """The paths in the model's order; CheckpointError if the settings choose no path."""
        names = self._settings.names("target_modules")
        if names is None:
            if self._settings.config.present("target_parameters"):
                return ()
            raise unchecked_adapter(
                "target_modules is null: the defaults of one version of peft count"
            )
        found = self._kept(self._matching("target_modules", names))
        if names.ends is not None:  # an expression says the layers itself
            found = tuple(self._in_layers(found, names.ends))
        if not found:
            given = str(self._settings.config.values.get("target_modules"))
            shown = quoted(given if len(given) <= _SHOWN else f"{given[:_SHOWN]}...")
            target = self._base.expectation.target
            raise CheckpointError(f"target_modules, {shown}, chooses no module of {target}")
        return found

    @cached_property
    def parts(self) -> tuple[AdaptedModule, ...]:
        """The chosen modules, which all have a weight."""
        found = [self._base.parts.get(path) for path in self.chosen]
        for path, part in zip(self.chosen, found, strict=True):
            if part is None or "weight" not in part.tensors:
                raise unchecked_adapter(
                    f"target_modules chooses {quoted(path)}, which is not a layer"
                )
        return tuple(part for part in found if part is not None)

    def _matching(self, key: str, names: ModuleNames) -> tuple[str, ...]:
        paths = self._base.paths
        if names.ends is not None:
            return tuple(path for path in paths if name_ends_in(path, names.ends))
        if names.expression is None:
            return tuple(self._all_linear())
        try:
            found = names.expression.matching(paths)
        except UnsafeError as error:
            raise unchecked_adapter(f"{key} is an expression that is not run: {error}") from None
        return tuple(path for path in paths if path in found)

    def _kept(self, found: tuple[str, ...]) -> tuple[str, ...]:
        """Without what is excluded, and what is saved whole anyway."""
        names = self._settings.names("exclude_modules")
        left_out = frozenset(self._matching("exclude_modules", names) if names else ())
        saved = self._settings.saved()
        if strange := next((name for name in saved if not _PLAIN.fullmatch(name)), None):
            raise unchecked_adapter(
                f"modules_to_save names {quoted(strange)}, which is an expression"
            )
        whole = tuple(f".{name}." for name in saved)
        return tuple(
            path
            for path in found
            if path not in left_out and not any(name in f".{path}." for name in whole)
        )

    def _in_layers(self, found: Iterable[str], named: frozenset[str]) -> Iterator[str]:
        """Those of the layers in layers_to_transform, and those that are named in full."""
        layers = self._settings.layers()
        if layers is None:
            yield from found
            return
        patterns = self._layer_patterns()
        for path in found:
            numbers = (pattern.match(path) for pattern in patterns)
            number = next((match[1] for match in numbers if match), None)
            if path in named or (number is not None and int(number) in layers):
                yield path

    def _layer_patterns(self) -> tuple[re.Pattern[str], ...]:
        config = self._settings.config
        value = config.values.get("layers_pattern")
        texts: tuple[str, ...] = (value,) if isinstance(value, str) else ()
        if not texts and config.present("layers_pattern"):
            texts = config.texts("layers_pattern")
        if not any(texts):
            return (_NUMBER,)
        if strange := next((text for text in texts if not _PLAIN.fullmatch(text)), None):
            raise unchecked_adapter(f"layers_pattern is the expression {quoted(strange)}")
        return tuple(re.compile(rf"(?:^|.*?\.){text}\.(\d+)\.", re.ASCII) for text in texts)

    def _all_linear(self) -> Iterator[str]:
        """Every linear layer but the one that the model's outputs come from.

        peft writes down the modules that this comes to; only its user's own config says it so.
        """
        if any(".experts" in path for path in self._base.paths):
            raise unchecked_adapter(
                "target_modules is all-linear, and versions differ on what experts are"
            )
        linear = [part for part in self._base.parts.values() if part.is_linear]
        outputs = {part.path for part in linear if part.path in _OUTPUTS}
        if not outputs and self._settings.task == "SEQ_CLS":
            heads = (name for name in _CLASSIFIERS if name in self._base.parts)
            outputs = set(heads)
        return (part.path for part in linear if part.path not in outputs)


class Ranks:
    """The rank of each module: rank_pattern's first key that fits the end of its name, else r."""

    def __init__(self, settings: AdapterSettings, paths: Iterable[str], otherwise: int) -> None:
        self.otherwise = otherwise
        pattern: Mapping[str, int] = settings.ranks()
        plain = {key: place for place, key in enumerate(pattern) if _PLAIN.fullmatch(key)}
        self._ranks = tuple(pattern.values())
        self._plain = plain
        self._others = [
            (place, _matched(key, paths)) for place, key in enumerate(pattern) if key not in plain
        ]

    def of(self, path: str) -> int:
        places = [self._plain[end] for end in suffixes(path) if end in self._plain]
        places += [place for place, found in self._others if path in found]
        return self._ranks[min(places)] if places else self.otherwise


def _matched(key: str, paths: Iterable[str]) -> frozenset[str]:
    """The modules whose names end in what the key matches, which begins at a dot."""
    try:
        return safe_expression("a key of rank_pattern", rf"(.*\.)?({key})").matching(paths)
    except UnsafeError as error:
        raise unchecked_adapter(
            f"rank_pattern has {quoted(key)}, which is not run: {error}"
        ) from None

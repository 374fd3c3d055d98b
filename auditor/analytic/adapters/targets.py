"""The modules of the base that an adapter's settings choose, and their ranks."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from auditor.analytic.adapters.base import AdaptedModel, AdaptedModule, name_ends_in, suffixes
from auditor.analytic.adapters.settings import (
    AdapterSettings,
    ModuleNames,
    paths_matching,
    unchecked_adapter,
)
from auditor.errors import CheckpointError
from auditor.messages import quoted

# The first number after two name segments: peft's pattern for a layer's number.
_NUMBER = re.compile(r".*?\.[^.]*\.(\d+)\.", re.ASCII)
_PLAIN = re.compile(r"[\w.]+")
_SHOWN = 60  # the most characters of a list of targets in a message
_OUTPUTS = frozenset({"lm_head", "embed_out", "output_projection"})
# Names of classification heads, which all-linear leaves out.
_CLASSIFIERS = ("score", "classifier")


class Targets:
    """The modules of one base that `target_modules` chooses."""

    def __init__(self, settings: AdapterSettings, base: AdaptedModel) -> None:
        self._settings = settings
        self._base = base

    @cached_property
    def chosen(self) -> tuple[str, ...]:
        """The chosen paths in the model's order; raise CheckpointError if no module matches."""
        names = self._settings.names("target_modules")
        if names is None:
            if self._settings.config.present("target_parameters"):
                return ()
            raise unchecked_adapter(
                "target_modules is null: its default depends on the version of peft"
            )
        paths = self._without_excluded(self._matching("target_modules", names))
        if names.ends is not None:  # an expression itself decides about layers
            paths = tuple(self._in_layers(paths, names.ends))
        if not paths:
            declared = str(self._settings.config.values.get("target_modules"))
            shown = quoted(declared if len(declared) <= _SHOWN else f"{declared[:_SHOWN]}...")
            target = self._base.expectation.target
            raise CheckpointError(f"target_modules, {shown}, matches no module of {target}")
        return paths

    @cached_property
    def parts(self) -> tuple[AdaptedModule, ...]:
        """The chosen modules, which all have a weight."""
        modules = [self._base.parts.get(path) for path in self.chosen]
        for path, part in zip(self.chosen, modules, strict=True):
            if part is None or "weight" not in part.tensors:
                raise unchecked_adapter(
                    f"target_modules chooses {quoted(path)}, which is not a layer"
                )
        return tuple(part for part in modules if part is not None)

    def _matching(self, key: str, names: ModuleNames) -> tuple[str, ...]:
        paths = self._base.paths
        if names.ends is not None:
            return tuple(path for path in paths if name_ends_in(path, names.ends))
        if names.expression is None:
            return tuple(self._all_linear())
        matching = paths_matching(key, names.expression, paths)
        return tuple(path for path in paths if path in matching)

    def _without_excluded(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Return the paths except those of modules that are excluded or saved completely."""
        names = self._settings.names("exclude_modules")
        left_out = frozenset(self._matching("exclude_modules", names) if names else ())
        saved = self._settings.saved()
        if expression := next((name for name in saved if not _PLAIN.fullmatch(name)), None):
            raise unchecked_adapter(
                f"modules_to_save names {quoted(expression)}, which is an expression"
            )
        saved_ends = tuple(f".{name}." for name in saved)
        return tuple(
            path
            for path in paths
            if path not in left_out and not any(name in f".{path}." for name in saved_ends)
        )

    def _in_layers(self, paths: Iterable[str], named: frozenset[str]) -> Iterator[str]:
        """Yield the paths in the layers of layers_to_transform, and the paths in `named`."""
        layers = self._settings.layers()
        if layers is None:
            yield from paths
            return
        patterns = self._layer_patterns()
        for path in paths:
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
        if expression := next((text for text in texts if not _PLAIN.fullmatch(text)), None):
            raise unchecked_adapter(f"layers_pattern is the expression {quoted(expression)}")
        return tuple(re.compile(rf"(?:^|.*?\.){text}\.(\d+)\.", re.ASCII) for text in texts)

    def _all_linear(self) -> Iterator[str]:
        """Yield every linear layer except the output layer.

        A config that peft saves lists these modules; only a config written by hand has all-linear.
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
    """A lookup of a module's rank: the value of rank_pattern's first matching key, else `r`."""

    def __init__(self, settings: AdapterSettings, paths: Iterable[str], default: int) -> None:
        self._default = default
        pattern: Mapping[str, int] = settings.ranks()
        plain = {key: place for place, key in enumerate(pattern) if _PLAIN.fullmatch(key)}
        self._ranks = tuple(pattern.values())
        self._plain = plain
        self._others = [
            (place, paths_matching("rank_pattern", rf"(.*\.)?({key})", paths))
            for place, key in enumerate(pattern)
            if key not in plain
        ]

    def of(self, path: str) -> int:
        places = [self._plain[end] for end in suffixes(path) if end in self._plain]
        places += [place for place, paths in self._others if path in paths]
        return self._ranks[min(places)] if places else self._default

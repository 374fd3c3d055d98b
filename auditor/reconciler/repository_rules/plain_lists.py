"""Lists of modules in a quantization config, such as `ignore`, and entries that match no module.

Loaders skip an entry that matches nothing. transformers compares entries with names in memory; the
rules therefore compare them with stored, expected and in-memory names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from auditor.bounded.patterns import names_beginning
from auditor.findings import Finding, UnmatchedModules
from auditor.layouts._scheme import at_or_below, followed, names_in_skip_lists, plain_among_packed
from auditor.layouts.packing import FLOATS, Stored
from auditor.messages import listed
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text

_LISTS = (
    *("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"),
    *("llm_int8_skip_modules", "linear_weights_not_to_quantize"),
)
_LAYERS = "quantized_layers"  # of modelopt: an object by module
_MOST = 2_000  # entries that are compared
_MOST_PATHS = 20_000  # paths that a pattern is compared with
_EXPRESSION = "re:"
_NAME = re.compile(r"[\w.]+")
_CLASS = re.compile(r"[A-Z]\w*")
_LAYER = re.compile(r"\b\w+\.[0-9]")


class OtherNaming(NamedTuple):
    """An entry that names a module with a longer prefix than the files and the class."""

    key: str
    entry: str
    module: str


def other_namings(case: RepositoryCase) -> Iterator[OtherNaming]:
    """Yield the first entry of each list that names a module by another prefix, to no effect.

    The class must have the same names in memory as in the files: names of a multimodal model
    differ by version, and engines translate them.
    """
    for key, entries in _entries(case).items():
        names = case.memory_names
        if not names or names != tuple(one.name for one in case.expected()):
            return
        stored = Stored(case.stored)
        plain = _plain_modules(stored)
        for entry in entries:
            module = next(iter(_inside(entry, stored)), None)
            if module is None or entry in stored.modules:
                continue
            is_meant = (module not in plain) if key == _LAYERS else (module in plain)
            others = {one for one in entries if one != entry}
            if is_meant and not _covers(others, module):
                yield OtherNaming(key, entry, module)
                break


def unmatched_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Report the entries of each list that match no module."""
    for key, entries in _entries(case).items():
        names = (*(one.name for one in case.stored), *case.memory_names)
        names = (*names, *(one.name for one in case.expected()))
        if not case.memory_names:  # files that were not read may have the modules
            return
        text, paths = "\n".join(names), _paths(names)
        unmatched = [one for one in entries if not _matches(one, text, paths)]
        if unmatched:
            where = f"{key} of quantization_config"
            many = f"{len(unmatched)} entries match" if len(unmatched) > 1 else "one entry matches"
            yield UnmatchedModules(
                says=((case.config_file, f"quantization_config.{key}", value_text(unmatched)),),
                reason=f"{where}: {many} no module: {listed(unmatched[:3])}",
                fix=f"remove from {key} what is not meant, or name the modules as the files do",
            )


def _entries(case: RepositoryCase) -> Mapping[str, list[str]]:
    """Return the entries by list; a class name or a value that is not text is left out."""
    declared = case.config.get("quantization_config")
    if not isinstance(declared, Mapping) or not case.stored:
        return {}
    found = {}
    for key in (*_LISTS, _LAYERS):
        value = declared.get(key)
        is_list = isinstance(value, Mapping if key == _LAYERS else list)
        texts = [one for one in value if isinstance(one, str)] if is_list and value else []
        names = [one for one in texts if one and not _CLASS.fullmatch(one)]
        if 0 < len(names) <= _MOST:
            found[key] = names
    return found


def _paths(names: Iterable[str]) -> set[str]:
    """Return the names with the names of all modules above them."""
    paths: set[str] = set()
    for name in names:
        path = name
        while path and path not in paths:
            paths.add(path)
            path = path.rpartition(".")[0]
    return paths


def _matches(entry: str, text: str, paths: set[str]) -> bool:
    """Return whether an entry may match a module: by any reading of any loader."""
    if _NAME.fullmatch(entry):
        layer = _LAYER.search(entry)
        return entry in paths or (entry[layer.start() :] if layer else entry) in text
    if len(paths) > _MOST_PATHS:
        return True
    if entry.startswith(_EXPRESSION):
        found = followed(names_beginning, [entry.removeprefix(_EXPRESSION)], paths)
    else:
        loose = re.sub(r"\*+", "*", entry).replace(".*", "*").strip("*.")
        found = followed(names_beginning, [f".*{loose.replace('*', '.*')}"], paths)
        found = found or names_in_skip_lists([entry], paths)
    return found is None or bool(found)


def _inside(entry: str, stored: Stored) -> Iterator[str]:
    """Yield the module that an entry names after a further prefix, the longest name first."""
    rest = entry.partition(".")[2] if _NAME.fullmatch(entry) else ""
    while "." in rest:
        if rest in stored.modules:
            yield rest
        rest = rest.partition(".")[2]


def _covers(entries: set[str], module: str) -> bool:
    """Return whether another entry names the module, or may: a pattern is not followed here."""
    plain = frozenset(one for one in entries if _NAME.fullmatch(one))
    is_end = any(module.endswith(one) for one in plain)
    return is_end or len(plain) < len(entries) or at_or_below(module, plain)


def _plain_modules(stored: Stored) -> frozenset[str]:
    """Return the plain modules that resemble packed ones."""
    packed = [
        module
        for module, parts in stored.modules.items()
        if {"qweight", "weight_packed"} & parts.keys()
        or ("weight" in parts and parts["weight"].dtype not in {None, *FLOATS})
    ]
    return (
        frozenset(plain_among_packed(stored, packed, every_linear=True)) if packed else frozenset()
    )

"""Code that auto_map names: each module is in the repository, or in one that is named."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.companions.companion_files import PROCESSORS, TOKENIZER_CONFIG
from auditor.messages import listed, quoted
from auditor.reconciler.findings import CodeNotThere, Finding
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text

_KEY = "auto_map"
_CLASS = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\.[A-Za-z_]\w*", re.ASCII)


def code_findings(case: RepositoryCase) -> Iterator[Finding]:
    if not case.whole:
        return
    says: list[tuple[str, str, str]] = []
    lacking: set[str] = set()
    for file, values in _maps(case):
        for auto, name in _named(values):
            module = _CLASS.fullmatch(name)
            path = f"{module[1].replace('.', '/')}.py" if module else None
            if path is not None and path not in case.names:
                says.append((file, f"{_KEY}.{auto}", value_text(name)))
                lacking.add(path)
    if not lacking:
        return
    each = ", ".join(f"{file}: {key} {value}" for file, key, value in says[:5])
    yield CodeNotThere(
        says=tuple(says),
        reason=f"{each}; {listed(sorted(lacking))}: not in the repository",
        fix=f"upload {listed(sorted(lacking))}, or name the repository that has it before a --",
    )


def _maps(case: RepositoryCase) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield case.config_file, case.config
    for name in (TOKENIZER_CONFIG, *PROCESSORS):
        values = case.object(name)
        if values is not None:
            yield name, values


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Auto class and `module.Class`; what is of another repository, `org/name--...`, left out."""
    said = values.get(_KEY)
    if isinstance(said, list):  # of older tokenizers
        said = {"AutoTokenizer": said}
    if not isinstance(said, Mapping):
        return
    for auto, names in said.items():
        for name in names if isinstance(names, list) else (names,):
            if isinstance(name, str) and "--" not in name and len(name) < 200:  # noqa: PLR2004
                yield quoted(auto)[1:-1], name

"""Cases as files: what lies in a folder, and what an audit must say of it.

`tests/cases/README.md` describes the keys. `cases_of` reads a file, `build` writes a case's folder,
and `observed` returns what the expectation names, so that a test compares two dictionaries.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from support.case_tags import Loader, put
from support.distributed import WRITERS
from support.sharding import INDEX, alarms, bytes_of, kinds, on_disk, pointer, shard_names, write
from support.torch_files import torch_bytes

from auditor import Report, Unaudited, audit, fix
from auditor.analytic import Role, read_config
from auditor.analytic.conversions import class_memory
from auditor.audit.expected import expectation_of
from auditor.audit.model import examine_undiagnosed
from auditor.audit.options import Options
from auditor.cli.console import FailOn, exit_code
from auditor.downloader.fetching import fetch
from auditor.findings import FINDING_KINDS, Severity

PLACE = Path(__file__).parent.parent / "cases"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"

_KEYS = {"name", "model", "config", "tensors", "weights", "beside", "files", "audit", "expect"}
_KEYS |= {"also", "numbers", "bytes_as", "second", "diff", "claims", "claim", "gguf"}
_KEYS |= {"folder", "index", "path", "options"}  # of bad_input
_TENSOR_KEYS = {"of", "config", "form", "drop", "keep", "rename", "shape", "dtype", "add"}
_KINDS = frozenset(kind.kind for kind in FINDING_KINDS)
_ALARMS = frozenset(kind.kind for kind in FINDING_KINDS if kind.severity is not Severity.INFO)
_OF_REPORT = {
    "exit",
    "verdict",
    "reason",
    "target",
    "causes",
    "closes",
    "fields",
    "undetermined",
    "alternatives",
    "fits",
    "mentions",
    "omits",
    "contains",
    "lacks",
    "left",
    "alarms",
    "hidden",
    "stored",
}
_WORDS = {"fits", "mentions", "omits", "contains", "lacks", "left"}
_WEIGHT_KEYS = {"count", "names", "stem", "index", "totals", "twice", "lost", "pointers"}
_OF_FIX = {"renames", "values", "generation", "allow", "after", "nothing"}

Table = dict[str, tuple[str, tuple[int, ...]]]  # name: (dtype, shape)


class Case(NamedTuple):
    """A case: its name, and its keys merged with those of the document that it varies."""

    name: str
    keys: Mapping[str, Any]


@cache
def models() -> Mapping[str, Mapping[str, Any]]:
    """Return the config of each model, by its name in the cases."""
    found: Mapping[str, Mapping[str, Any]] = yaml.safe_load((PLACE / "models.yaml").read_text())
    return found


def cases_of(path: Path) -> Iterator[Case]:
    """Yield the cases of a file: each document, then its variations under `also`."""
    for document in yaml.load_all(path.read_text(), Loader):
        checked(document, _KEYS, document["name"])
        whole = {key: value for key, value in document.items() if key != "also"}
        yield Case(document["name"], whole)
        for number, change in enumerate(document.get("also", ()), 2):
            checked(change, _KEYS - {"also"}, document["name"])
            yield Case(change.get("name", f"{document['name']} ({number})"), {**whole, **change})


def kinds_of() -> frozenset[str]:
    """Return the kinds of findings, each of which may be a key of an expectation."""
    return _KINDS


def checked(found: Mapping[str, Any], known: set[str], where: str) -> Mapping[str, Any]:
    """Return the mapping; raise ValueError if it has a key that nobody reads."""
    if unknown := found.keys() - known:
        raise ValueError(f"{where}: {', '.join(sorted(unknown))} is not a key of a case")
    return found


def config_of(case: Case) -> dict[str, Any] | None:
    """Return the config that the folder declares; None if it has no config."""
    changes = case.keys.get("config", {})
    if changes is None:
        return None
    return _changed(case, changes)


def _changed(case: Case, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of the case's model with some keys changed, without those that are null."""
    values = {**models()[case.keys["model"]], **changes}
    return {key: value for key, value in values.items() if value is not None}


def tensors_of(case: Case) -> Table:
    """Return the tensors that the files store."""
    keys = checked(case.keys.get("tensors", {}), _TENSOR_KEYS, case.name)
    config = _changed(case, keys.get("config", {}))
    target = keys.get("of") or config.get("_class_name") or config["architectures"][0]
    expected = expectation_of(read_config(CONFIG, json.dumps(config).encode()), target).expectation
    roles = {Role.PARAMETER, Role.BUFFER}
    shapes = {one.name: one.shape for one in expected.tensors if one.role in roles}
    if keys.get("form") == "memory":
        shapes = class_memory(expected).shapes
    table: Table = {name: ("F32", one) for name, one in shapes.items() if _is_kept(name, keys)}
    for pattern, shape in keys.get("shape", {}).items():
        names = [name for name in table if re.search(pattern, name)]
        table |= {name: (table[name][0], tuple(shape)) for name in names}
    for pattern, dtype in keys.get("dtype", {}).items():
        table |= {name: (dtype, one[1]) for name, one in table.items() if re.search(pattern, name)}
    for pattern, new in keys.get("rename", {}).items():
        table = {re.sub(pattern, new, name): one for name, one in table.items()}
    for name, (dtype, *shape) in keys.get("add", {}).items():
        table[name] = (dtype, tuple(shape))
    return table


def _is_kept(name: str, keys: Mapping[str, Any]) -> bool:
    is_dropped = "drop" in keys and re.search(keys["drop"], name)
    return not is_dropped and bool(re.search(keys.get("keep", ""), name))


def build(case: Case, top: Path) -> Path:
    """Write the folder of a case."""
    folder = top / case.keys.get("folder", "")
    folder.mkdir(parents=True)
    config = None if "gguf" in case.keys else config_of(case)
    if config is not None:
        dtype = {} if "dtype" in case.keys.get("config", {}) else {"dtype": "float32"}
        (folder / CONFIG).write_text(json.dumps({**dtype, **config}, indent=2))
    if "gguf" in case.keys:
        from support.cases_of_gguf import write_gguf  # noqa: PLC0415 - needs the package gguf

        write_gguf(case.keys["gguf"], models()[case.keys["model"]], folder)
    else:
        _write_weights(case, folder)
    for name, tensors in case.keys.get("beside", {}).items():
        is_share = isinstance(tensors, str)
        keys = case.keys if is_share else {**case.keys, "tensors": tensors}
        table = tensors_of(Case(case.name, keys))
        _write(folder / name, _share(table, tensors) if is_share else table)
    for name, content in case.keys.get("files", {}).items():
        put(top / name, content)
    return top


def _write_weights(case: Case, folder: Path) -> None:
    """Write the weight files of a case, and their index."""
    weights = case.keys.get("weights", WEIGHTS)
    if isinstance(weights, Mapping) and next(iter(weights)) in WRITERS:
        form = next(iter(weights))
        WRITERS[form](folder / weights.get("folder", ""), tensors_of(case), **weights[form])
    elif weights is not None:
        table = tensors_of(case)
        shards = {weights: table} if isinstance(weights, str) else _sharded(case, table, folder)
        for name, part in shards.items():
            _write(folder / name, part)
        if "numbers" in case.keys:
            from support.case_numbers import fill  # noqa: PLC0415 - needs numpy

            for name in shards:
                fill(folder / name, case.keys["numbers"], case.keys.get("bytes_as"))
        if isinstance(weights, Mapping):
            for number in weights.get("pointers", ()):
                pointer(folder / list(shards)[number - 1])
    if changes := case.keys.get("index"):
        index = json.loads((folder / INDEX).read_text())
        for key, values in changes.items():
            index[key] |= values
        (folder / INDEX).write_text(json.dumps(index))


def _share(table: Table, share: str) -> Table:
    """Return every third tensor from the second on for `2/3`; all tensors for `1/1`."""
    number, count = map(int, share.split("/"))
    return {name: table[name] for name in sorted(table)[number - 1 :: count]}


def _write(path: Path, table: Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in {".bin", ".pt"}:
        path.write_bytes(torch_bytes(table))
    else:
        write(path, table)


def _sharded(case: Case, table: Table, folder: Path) -> dict[str, Table]:
    """Split a table into files and write their index; leave out the lost ones."""
    keys = checked(case.keys["weights"], _WEIGHT_KEYS, case.name)
    stem = keys.get("stem", "model")
    names = keys.get("names") or shard_names(keys["count"], stem)
    ordered = sorted(table)
    length = -(-len(ordered) // len(names))
    parts = {
        name: {one: table[one] for one in ordered[at * length : (at + 1) * length]}
        for at, name in enumerate(names)
    }
    if keys.get("index", True):
        weight_map = {one: name for name, part in parts.items() for one in part}
        true = {
            "total_size": bytes_of(table),
            "total_parameters": sum(prod(shape) for _, shape in table.values()),
        }
        stated = {"total_size": "+0", **keys.get("totals", {})}
        metadata = {key: _total(value, true[key]) for key, value in stated.items()}
        index = {"metadata": metadata, "weight_map": weight_map}
        is_torch = names[0].endswith(".bin")
        of_torch = "pytorch_model" if stem == "model" else stem
        file = f"{of_torch}.bin.index.json" if is_torch else INDEX.replace("model", stem, 1)
        (folder / file).write_text(json.dumps(index))
    first, *others = parts.values()
    first.update((one, table[one]) for other in others for one in [*other][: keys.get("twice", 0)])
    lost = {names[number - 1] for number in keys.get("lost", ())}
    return {name: part for name, part in parts.items() if name not in lost}


def _total(stated: Any, true: int) -> Any:
    """Return a stated total; "+4" is four more than the true one, "*2" twice as much."""
    if not isinstance(stated, str):
        return stated
    return int(true * float(stated[1:])) if stated[0] == "*" else true + int(stated)


def audited(case: Case, folder: Path) -> Report | Unaudited:
    """Audit the folder through the public API."""
    return audit(str(folder), **case.keys.get("audit", {}))


def observed(case: Case, folder: Path, outcome: Report | Unaudited) -> dict[str, Any]:
    """Return what the audit says about each key of the case's expectation.

    Alarms that the expectation does not name are added if it names one, or if it expects none.
    """
    expected = checked(case.keys["expect"], _OF_REPORT | {"fix"} | _KINDS, case.name)
    found = {key: _answer(key, outcome) for key in expected if key in _OF_REPORT - _WORDS}
    counts = dict.fromkeys((key for key in expected if key in _KINDS), 0)
    names_alarms = bool(_ALARMS & expected.keys()) or expected.get("exit") == 0
    for finding in outcome.findings:
        if finding.kind in counts or (names_alarms and finding.kind in _ALARMS):
            counts[finding.kind] = counts.get(finding.kind, 0) + max(len(finding.names), 1)
    said = " ".join(f"{one.summary} {one.fix}" for one in outcome.diagnosis)
    for key, is_said in (("mentions", True), ("omits", False)):
        if key in expected:
            found[key] = [word for word in expected[key] if (word in said) is is_said]
    if "fits" in expected:
        known = _answer("alternatives", outcome)
        found["fits"] = [values for values in expected["fits"] if values in known]
    if "left" in expected:
        found["left"] = _left(folder, outcome)
    for key in {"contains", "lacks"} & expected.keys():
        texts = (*(one.reason for one in outcome.findings), *outcome.notes, *outcome.unchecked)
        texts += tuple(one.text for one in outcome.checked.values())
        holds = [
            word for word in expected[key] if (word in "\n".join(texts)) == (key == "contains")
        ]
        found[key] = holds
    if "fix" in expected:
        found["fix"] = _fixed(expected["fix"], folder)
    if isinstance(outcome, Report) and outcome.residual:
        found["residual"] = outcome.residual
    return {**found, **counts}


def _answer(key: str, outcome: Report | Unaudited) -> Any:
    causes = outcome.diagnosis
    explained = {at for one in causes for at in one.findings}
    hidden = {one.name for each in alarms(outcome) for one in getattr(each, "hidden", ())}
    of_causes: dict[str, Any] = {
        "causes": [one.cause for one in causes],
        "closes": sum(len(outcome.findings[at].names) for at in explained),
        "fields": {key: after for one in causes for key, _, after in one.fields},
        "undetermined": sorted(key for one in causes for key, _ in one.undetermined),
        "alternatives": [dict(values) for one in causes for values in one.alternatives],
        "exit": exit_code(outcome, FailOn.WARNING),
        "alarms": kinds(outcome),
        "hidden": len(hidden),
        "stored": outcome.observed.tensors if outcome.observed else 0,
    }
    if key in of_causes:
        return of_causes[key]
    value = getattr(outcome, key)
    return value.value if key == "reason" and value else value


def _left(folder: Path, outcome: Report | Unaudited) -> int:
    """Return the number of errors and warnings after the changes of all causes, in memory."""
    snapshot = fetch(str(folder))
    for cause in outcome.diagnosis:
        snapshot = cause.change.applied_to(snapshot) if cause.change else snapshot
    return len(examine_undiagnosed(snapshot, Options(requested="changed")).alarms)


def _fixed(expected: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return what `fix` writes differently, and the exit code of the fixed folder's audit."""
    fixed = folder.with_name(f"{folder.name}.fixed")
    fix(folder, apply=True, allow=expected.get("allow", ()))
    if not fixed.exists():
        return {"nothing": True, **({"allow": expected["allow"]} if "allow" in expected else {})}
    before, after = _values(folder / CONFIG), _values(fixed / CONFIG)
    found = {
        "renames": len(on_disk(fixed).keys() - on_disk(folder).keys()),
        "values": {key: after[key] for key in after if after[key] != before.get(key)},
        "generation": _values(fixed / "generation_config.json"),
        "allow": expected.get("allow"),
        "after": exit_code(audit(str(fixed)), FailOn.WARNING),
    }
    return {key: found[key] for key in checked(expected, _OF_FIX, "fix") if key in found}


def _values(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return values

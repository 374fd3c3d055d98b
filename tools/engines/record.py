"""What an engine's loader does with the saves of its entries, folded into a data file."""

import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import transformers

from auditor.bounded.json_text import with_floats
from auditor.engines.knowledge import value_at, without_sizes
from engines import config4, defaults, guards, probes, saves
from engines.config4 import Fill
from engines.judging import Judge
from engines.saves import Config, Outside, Save

Entry = dict[str, Any]
Change = Callable[[], probes.Written]

_REASON = 160
_OUTCOMES = ("raises", "loads")
_EXPLAINED = frozenset({"declared", "packed", "class", "files", "config4"})
_WITHOUT = "without "
_AT_ONCE = 100
_ROUNDS = 12
_MOST_MENDING = 8
# Which tensors the engine takes, and not a value of the config, decides with this message.
_OF_NAMES = re.compile(
    r"ValueError: (Received|Missing) \d+ parameters|ValueError: (Can not map|Duplicated) tensor"
    r"|.*(no module or parameter named|not initialized from checkpoint|not supported for now)"
)
# Another size may be accepted. An error of type is about a value that no size has.
_OF_SIZES = re.compile(
    r"(?!TypeError|AttributeError).*(\b(shapes?|sizes?|dimensions?|length|sum|must|expected)\b"
    r"|divisible|exceed|[Vv]alidation|AssertionError: $)",
    re.DOTALL,
)
_USELESS = re.compile(r"ValueError: (Received|Missing) \d+ parameters")
_TIED = "tie_word_embeddings"
_BASE = 512345.0
_EPS = 0.00037
_OTHER_SIZES = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 3}
_FEWEST = 5  # entries that agree before a probe is general
_EPS_KEYS = (
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layernorm_epsilon",
    "norm_epsilon",
    "norm_eps",
)
# Numbers that change a model's outputs, and that an engine may not look at.
_NUMBERS = (
    "sliding_window",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "attention_multiplier",
    "residual_multiplier",
    "embedding_multiplier",
    "query_pre_attn_scalar",
    "attention_chunk_size",
    "routed_scaling_factor",
)


class Recorder:
    """The recorder of one engine: it writes folders, has them judged and keeps the outcomes."""

    def __init__(self, judge: Judge, folder: Path, keyed_by: str, *, every_key: bool) -> None:
        self._judge = judge
        self._folder = folder
        self._by_class = keyed_by == "architectures"
        self._every_key = every_key
        self.asked = 0

    def outcomes(self, changes: Iterable[Change]) -> Iterator[dict[str, Any]]:
        """Yield the judge's answer about each folder; folders are removed afterwards."""
        changes = iter(changes)
        while batch := list(itertools.islice(changes, _AT_ONCE)):
            folders = [self._folder / f"{number:03}" for number in range(len(batch))]
            for change, folder in zip(batch, folders, strict=True):
                probes.write(folder, change())
            self.asked += len(batch)
            answers = self._judge.outcomes(folders)
            for folder in folders:
                shutil.rmtree(folder)
            yield from answers

    def outcome(self, written: probes.Written) -> dict[str, Any]:
        """Return the judge's answer about one folder."""
        return next(self.outcomes([lambda: written]))

    def entry(self, name: str) -> Entry:
        """Return the entry of an architecture or a model type.

        If an engine takes no save of a type's language model, the base model is tried: GPT-2 was
        published so.
        """
        if self._by_class:
            return self._entry_of(name)
        try:
            class_name = saves.head_class(name)
        except Outside as error:
            return {"not_tried": shortened(str(error))}
        entry = self._entry_of(class_name)
        base = saves.relatives(name).get("base")
        if base and not entry.get("loads") and (other := self._entry_of(base)).get("loads"):
            return other
        return entry

    def _entry_of(self, class_name: str) -> Entry:
        try:
            found = [*saves.variants(class_name)]
        except Outside as error:
            return {"not_tried": shortened(str(error))}
        model_type = found[0][1].model_type
        entry: Entry = {"class": class_name, "model_type": model_type}
        fills, unclear = self._fills(found[0][1])
        own = defaults.defaults(found[0][1], fills, self._filled_outcome)
        fills |= {path: one.fill for path, one in own.items()}
        sound = [
            (changes, save._replace(config=config4.with_keys(save.config, fills)))
            for changes, save in found
        ]
        entry["kinds"] = sorted({kind for _, save in sound for kind in saves.kinds(save.tensors)})
        entry["variants"] = []
        loading, failures = self._sound(entry, sound, fills)
        if not entry["variants"]:
            required = {*fills, *self._without_value(found[0][1], fills)}
            if required:
                return {**entry, "kinds": [], "requires": sorted(required)}
            return {**entry, "kinds": [], "not_tried": failures[0]}
        if fills:
            entry["unclear" if unclear else "requires"] = sorted(fills)
            sources = {path: fill.source for path, fill in fills.items() if fill.source is not None}
            entry |= {"fills": sources} if sources else {}
            by_tensors = sorted(fills.keys() & config4.BY_TENSORS.keys())
            entry |= {"by_tensors": by_tensors} if by_tensors else {}
        if loading:
            self._probe(entry, loading, fills)
            entry |= self._readings(loading[0], fills)
            entry["reads"] |= self._tied(loading) if self._every_key else {}
            self._guard(entry, loading[0], fills)
            self._null(entry, loading[0], fills)
            self._spared(entry, loading, own)
        if own:
            entry["defaults"] = {path: one.number for path, one in own.items()}
        for probe, loads in (pair for one in own.values() for pair in one.outcomes.items()):
            _add(entry, probe, loads=loads)
        return entry

    def _sound(
        self, entry: Entry, sound: list[tuple[Config, Save]], fills: Mapping[str, Fill]
    ) -> tuple[list[Save], list[str]]:
        """Record the variants; return the saves that load, and why others say nothing.

        A refusal is recorded if it is over names. Another error follows from a value of the config:
        it is recorded with the config, if the engine raises it at two sizes.
        """
        loading: list[Save] = []
        failures: list[str] = []
        answers = self.outcomes(partial(_plain, save) for _, save in sound)
        for (changes, save), answer in zip(sound, answers, strict=True):
            reason = shortened(answer.get("error", ""))
            if not answer["judged"]:
                lacks = "FileNotFoundError" in reason
                why = "it reads a file that the save lacks" if lacks else reason
                failures.append(f"not judged here: {why}")
                continue
            of_names = answer["loads"] or _OF_NAMES.match(answer["error"])
            if not of_names and not self._is_refused(changes, save, fills, answer["error"]):
                failures.append(f"no small save fits: {reason}")
                continue
            numbers = [entry["kinds"].index(kind) for kind in saves.kinds(save.tensors)]
            variant = {"kinds": numbers, "loads": answer["loads"] or reason}
            if changes:
                variant["when"] = changes
            if not answer["loads"] and of_names:
                flags = dict(guards.deciding(save, self._loads(fills), loaded=False))
                variant |= {"when": {**changes, **flags}} if flags else {}
            if not answer["loads"] and (mending := self._mending(save)) is not None:
                variant["stays"] = True
                mended = sorted(numbered(probe, entry["kinds"]) for probe in mending)
                variant |= {"mends": mended} if mended else {}
            if not of_names:
                variant["tried"] = without_sizes(with_floats(save.config))
            entry["variants"].append(variant)
            loading += [save] if answer["loads"] else []
        return loading, failures

    def _mending(self, save: Save) -> list[str] | None:
        """Return the changes of names with which a refused save loads.

        Return None if one of them cannot be judged, or if many of them mend it.
        """
        changes = (*probes.missing(save), *probes.extras(save), *probes.layers_and_names(save))
        answers = [*self.outcomes(change for _, change in changes)]
        found = [probe for (probe, _), one in zip(changes, answers, strict=True) if one["loads"]]
        is_clear = all(one["judged"] for one in answers) and len(found) <= _MOST_MENDING
        return found if is_clear else None

    def _is_refused(
        self, changes: Config, save: Save, fills: Mapping[str, Fill], error: str
    ) -> bool:
        """Return whether the engine refuses a save of other sizes with the same error.

        Saves with several changes are left out, to keep the record short.
        """
        if len(changes) > 1 or config4.missing_keys(error) or _OF_SIZES.match(error):
            return False
        try:
            other = saves.build(save.class_name, changes, _OTHER_SIZES)
        except Outside:
            return False
        answer = self._filled_outcome(other, fills)
        errors = [re.sub(r"\d+", "", one) for one in (error, answer.get("error", ""))]
        return answer["judged"] and not answer["loads"] and errors[0] == errors[1]

    def _filled_outcome(self, save: Save, fills: Mapping[str, Fill]) -> dict[str, Any]:
        """Return the judge's answer about a save with the keys that the engine requires."""
        return self.outcome(probes.Written(config4.with_keys(save.config, fills), save.tensors))

    def _fills(self, save: Save) -> tuple[dict[str, Fill], bool]:
        """Return the keys that a fresh save lacks and the engine requires, with their values.

        Also return whether the judge leaves open what the engine does without them.
        """
        fills: dict[str, Fill] = {}
        unclear = False
        for _ in range(_ROUNDS):
            answer = self._filled_outcome(save, fills)
            missing = config4.missing_keys(answer.get("error", ""))
            if answer["loads"] or not missing:
                break
            unclear = unclear or not answer["judged"]
            before = dict(fills)
            for key in missing:
                # A key that is missing although it was written belongs to the nested config.
                paths = [path for path in (key, f"text_config.{key}") if path not in fills]
                for path in paths:
                    if fill := config4.fill_of(save.config, save.model_type, path):
                        fills.pop(key, None)
                        fills[path] = fill
                        break
            if fills == before:
                break
        return fills, unclear

    def _without_value(self, save: Save, fills: Mapping[str, Fill]) -> tuple[str, ...]:
        """Return the keys that the engine requires and for which nothing has a value."""
        answer = self._filled_outcome(save, fills)
        missing = config4.missing_keys(answer.get("error", ""))
        if not answer["judged"]:
            return ()
        return tuple(key for key in missing if key not in {**save.config, **fills})

    def _probe(self, entry: Entry, loading: list[Save], fills: Mapping[str, Fill]) -> None:
        """Record the probes of the first save, and those of the others that the first lacks."""
        relatives = {} if self._by_class else self._relatives(entry, fills)
        changes: dict[str, Change] = {}
        for save in loading:
            for probe, change in self._changes(save, relatives):
                changes.setdefault(probe, change)
            relatives = {}
        for path in _paths(loading[0].config) if self._every_key else ():
            changes[f"without {path}"] = partial(probes.without_key, loading[0], path)
        answers = dict(zip(changes, self.outcomes(changes.values()), strict=True))
        outcomes = {probe: one["loads"] for probe, one in answers.items() if one["judged"]}
        why = {probe: answers[probe].get("error", "") for probe in outcomes}
        needed = {p.removeprefix(_WITHOUT) for p, message in why.items() if _is_needed(p, message)}
        if needed:
            entry["requires"] = sorted(needed.union(entry.get("requires", ())))
        entry |= _outcomes(outcomes, entry["kinds"])
        if reasons := dict(_reasons(outcomes, why)):
            entry["why"] = reasons

    def _loads(self, fills: Mapping[str, Fill]) -> guards.Loads:
        """Return a function that has saves judged with the keys that the engine requires."""

        def loads(built: list[Save]) -> list[bool | None]:
            configs = [config4.with_keys(one.config, _filled_for(one, fills)) for one in built]
            changes = [
                partial(probes.Written, config, one.tensors)
                for config, one in zip(configs, built, strict=True)
            ]
            return [one["loads"] if one["judged"] else None for one in self.outcomes(changes)]

        return loads

    def _guard(self, entry: Entry, save: Save, fills: Mapping[str, Fill]) -> None:
        """Record the config keys that the engine does not read although shapes follow from them."""
        loads = self._loads(fills)
        found = [*guards.guards(save, loads)]
        if found:
            entry["guards"] = {guard.key: guard.rule for guard in found}
        for probe, loads in (pair for guard in found for pair in guard.outcomes.items()):
            _add(entry, probe, loads=loads)

    def _null(self, entry: Entry, save: Save, fills: Mapping[str, Fill]) -> None:
        """Record whether the engine takes null for keys that it requires and a fresh save lacks."""
        changes = [partial(_with_value, save, path, None) for path in fills]
        for path, answer in zip(fills, self.outcomes(changes), strict=True):
            if answer["judged"]:
                _add(entry, f"null {path}", loads=answer["loads"])

    def _spared(self, entry: Entry, loading: list[Save], own: Iterable[str]) -> None:
        """Record the required keys without which a variant loads, except those with a default."""
        required = [path for path in entry.get("requires", ()) if path not in own]
        variants = [one for one in entry["variants"] if one["loads"] is True]
        for variant, save in zip(variants, loading, strict=True):
            present = [path for path in required if value_at(save.config, path) is not None]
            answers = self.outcomes([partial(probes.without_key, save, path) for path in present])
            spared = [path for path, one in zip(present, answers, strict=True) if one["loads"]]
            if spared:
                variant["spares"] = spared

    def _changes(self, save: Save, relatives: Mapping[str, Save]) -> Iterator[probes.Probe]:
        yield from probes.probes(save, relatives)
        older = config4.as_version_4(save.config)
        yield "config4", lambda: probes.Written(older, save.tensors)

    def _relatives(self, entry: Entry, fills: Mapping[str, Fill]) -> dict[str, Save]:
        found = {}
        for word, class_name in saves.relatives(entry["model_type"]).items():
            try:
                other = saves.build(class_name)
            except Outside:
                continue
            found[word] = other._replace(config=config4.with_keys(other.config, fills))
        return found

    def _readings(self, save: Save, fills: Mapping[str, Fill]) -> Entry:
        """Return how the engine reads the rope base and epsilons, and which numbers it ignores."""
        older = save._replace(config=config4.as_version_4(save.config))
        changes: dict[str, Change] = {"plain": partial(_plain, save)}
        if value_at(save.config, "rope_parameters.rope_theta") is not None:
            changes["inner"] = partial(_with_value, save, "rope_parameters.rope_theta", _BASE)
            changes["top"] = partial(_with_value, older, "rope_theta", _BASE)
        for key in _EPS_KEYS:
            if isinstance(save.config.get(key), float):
                changes[key] = partial(_with_value, save, key, _EPS)
        for key in _NUMBERS if self._every_key else ():
            if type(value := save.config.get(key)) in {int, float}:
                changes[key] = partial(_with_value, save, key, value * 2 + 1)
        answers = dict(zip(changes, self.outcomes(changes.values()), strict=True))
        reads: dict[str, dict[str, Any]] = {}
        if "inner" in answers:
            inner, default = _reading(answers["inner"], "rope_base", _BASE)
            top, _ = _reading(answers["top"], "rope_base", _BASE)
            reads["rope_base"] = {"rope_parameters": inner, "top": top}
            if default is not None and "rope_theta" not in fills:
                reads["rope_base"]["default"] = default
        for key in _EPS_KEYS:
            how, default = _reading(answers.get(key, {}), "eps", _EPS)
            if how != "unseen":
                reads[key] = {"top": how} | ({} if default is None else {"default": default})
        plain = answers["plain"].get("reads", {})
        backend = {"backend": plain["backend"]} if "backend" in plain else {}
        seen = {key: answers[key].get("reads") for key in _NUMBERS if key in answers}
        ignored = [key for key, found in seen.items() if "fingerprint" in plain and found == plain]
        return backend | {"reads": reads} | ({"ignores": ignored} if ignored else {})

    def _tied(self, loading: list[Save]) -> dict[str, Any]:
        """Return whether the engine ties a stored head if the config does not say it."""
        save = next((one for one in loading if one.head in one.tensors), None)
        if save is None or _TIED not in save.config:
            return {}
        changes = [partial(_plain, save), partial(probes.without_key, save, _TIED)]
        plain, absent = (one.get("reads", {}).get("tied") for one in self.outcomes(changes))
        if plain is not False or absent is not True:
            return {}
        return {_TIED: {"top": "read", "tensor": save.head}}


def _filled_for(save: Save, fills: Mapping[str, Fill]) -> dict[str, Fill]:
    """Return the values of the keys that an engine requires for another save of the class."""
    return {
        path: config4.fill_of(save.config, save.model_type, path) or fill
        for path, fill in fills.items()
    }


def _add(entry: Entry, probe: str, *, loads: bool) -> None:
    key = "loads" if loads else "raises"
    entry[key] = sorted({*entry.get(key, ()), probe})


def _with_value(save: Save, path: str, value: float | None) -> probes.Written:
    config = deepcopy(save.config)
    *outer, key = path.split(".")
    (config[outer[0]] if outer else config)[key] = value
    return probes.Written(config, save.tensors)


def _reading(answer: Mapping[str, Any], what: str, value: float) -> tuple[str, float | None]:
    """Return whether the engine uses a value, and otherwise the one that it uses."""
    seen = answer.get("reads", {}).get(what, [])
    if any(abs(one - value) <= 1e-6 * value for one in seen):
        return "read", None
    return ("ignored", seen[0]) if len(seen) == 1 else ("unseen", None)


def _plain(save: Save) -> probes.Written:
    return probes.Written(save.config, save.tensors)


def _is_needed(probe: str, message: str) -> bool:
    return probe.startswith(_WITHOUT) and bool(config4.missing_keys(message))


def _outcomes(outcomes: Mapping[str, bool], kinds: list[str]) -> dict[str, list[str]]:
    """Return the probes that raise and those that load, without `some` where it adds nothing."""
    chosen: dict[str, list[str]] = {"raises": [], "loads": []}
    for probe, loads in outcomes.items():
        complete = probe.replace("some ", "missing ", 1)
        adds_nothing = complete != probe and outcomes.get(complete) == loads
        if not adds_nothing and not (loads and probe.startswith(_WITHOUT)):
            chosen["loads" if loads else "raises"].append(numbered(probe, kinds))
    return {key: sorted(probes) for key, probes in chosen.items()}


def _reasons(outcomes: Mapping[str, bool], why: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the loader's messages that say more than which tensors it met."""
    for probe, message in why.items():
        is_explained = probe.partition(" ")[0] in _EXPLAINED
        if is_explained and not outcomes[probe] and not _USELESS.match(message):
            yield probe, shortened(message)


def _paths(config: Config) -> Iterator[str]:
    for key in config:
        if key not in {"model_type", "architectures", "transformers_version"}:
            yield key
        if key == "text_config":
            yield from (f"{key}.{inner}" for inner in config[key])


def numbered(probe: str, kinds: list[str]) -> str:
    """Return a probe's id with its kind written as the kind's position."""
    verb, _, kind = probe.partition(" ")
    if kind in kinds:
        return f"{verb} #{kinds.index(kind)}"
    return probe


def shortened(message: str) -> str:
    """Return a message without this machine's paths, on one line, of limited length."""
    text = re.sub(r"(/[\w.+-]+){2,}/?", "FOLDER", " ".join(message.split()))
    return text if len(text) <= _REASON else text[: _REASON - 3] + "..."


def fold(header: Mapping[str, Any], date: str, entries: Mapping[str, Entry]) -> dict[str, Any]:
    """Return the data file's content, with what all entries have in common said once."""
    entries = deepcopy(dict(entries))
    tried = [entry for entry in entries.values() if entry.get("raises") or entry.get("loads")]
    general: dict[str, str] = {}
    for probe in sorted({p for entry in tried for key in _OUTCOMES for p in entry[key]}):
        agreeing = {key: [e for e in tried if probe in e[key]] for key in _OUTCOMES}
        outcomes = [key for key in _OUTCOMES if agreeing[key]]
        is_common = probe.startswith(("class unknown", "class none", "files "))
        if is_common and len(outcomes) == 1 and len(agreeing[outcomes[0]]) >= _FEWEST:
            general[probe] = outcomes[0]
            for entry in agreeing[outcomes[0]]:
                entry[outcomes[0]].remove(probe)
                entry.get("why", {}).pop(probe, None)
    aliases = header.get("aliases", {})
    entries = {n: e for n, e in entries.items() if not (n in aliases and "not_tried" in e)}
    aliases = {a: n for a, n in aliases.items() if a not in entries}
    unknown = {name for name, entry in entries.items() if _is_unknown_name(entry)}
    entries = {name: entry for name, entry in entries.items() if name not in unknown}
    if classes := header.get("classes"):
        header = {**header, "classes": [name for name in classes if name not in unknown]}
    versions = {**header.get("with", {}), "transformers": transformers.__version__}
    return {
        **header,
        "aliases": aliases,
        "date": date,
        "entries": entries,
        "general": general,
        "with": versions,
    }


def _is_unknown_name(entry: Entry) -> bool:
    """Return whether an engine that falls back on transformers refuses a class by its name."""
    variants = entry.get("variants", ())
    return bool(variants) and all("not supported for now" in str(one["loads"]) for one in variants)


def text_of(data: Mapping[str, Any]) -> str:
    """Return a data file's text: sorted keys, one entry a line."""
    lines = []
    for key in sorted(data):
        value = data[key]
        if key == "entries":
            inner = ",\n".join(f"{_compact(n)}:{_compact(e)}" for n, e in sorted(value.items()))
            lines.append(f'"entries":{{\n{inner}\n}}')
        else:
            lines.append(f"{_compact(key)}:{_compact(value)}")
    return "{" + ",\n".join(lines) + "}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

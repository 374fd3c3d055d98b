"""Record what releases of transformers make of checkpoints: `make releases ARGS=5.24.0`.

Each release is installed in a folder of its own and asked by judges/release.py; it shares torch
with this environment. Answers that exist are kept, so a run that was stopped goes on. The data file
has the newest release whole, and of each older one what differs from the next newer one.
"""

import argparse
import datetime as dt
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

RELEASES = ("4.57.6", "5.0.0", "5.5.0", "5.10.4", "5.15.1", "5.20.2", "5.24.0")
WRITERS = ("5.24.0", "4.57.6")  # the first one is the newest
_TOOLS = Path(__file__).parents[1]
_JUDGE = Path(__file__).parent / "judges" / "release.py"
_DATA = _TOOLS.parent / "auditor" / "data" / "engines" / "transformers.json"
_MOST_KINDS = 5  # of a layout
_CHANGES = Path(__file__).parent / "forward_changes.json"
# Config keys that change no output of a model in evaluation, or that belong to generation.
_WITHOUT_EFFECT = re.compile(
    r"_.*|architectures|(torch_)?dtype|model_type|transformers_version|.*(dropout|drop_(path|rate)).*"
    r"|(id2label|label2id|num_labels|problem_type|finetuning_task|prefix|task_specific_params)"
    r"|.*_token_(id|index)|.*_token|use_cache|use_return_dict|return_dict\w*|output_\w+|torchscript"
    r"|.*(initializer|init)_(range|factor|std|scale|cutoff_factor).*|initializer_\w+|init_\w+"
    r"|gradient_checkpointing|chunk_size_feed_forward|pruned_heads|use_bfloat16|tie_\w+|tf_\w+"
    r"|(apply_spec_augment|mask_(time|feature)_\w+|ctc_\w+|.*_loss\w*|loss_\w+|\w+_coef(ficient)?)"
    r"|(max|min)_length|.*no_repeat_ngram_size|num_(return_sequences|beams|beam_groups)|do_sample"
    r"|(early_stopping|temperature|top_[kp]|typical_p|repetition_penalty|length_penalty|bad_words_ids)"
    r"|(diversity_penalty|exponential_decay_\w+|begin_suppress_tokens|suppress_tokens|pretraining_tp)"
    r"|(remove_invalid_values|cross_attention_hidden_size|sparse_pred\w*|rescale_prenorm_residual)"
    r"|(problem_type|deterministic_flash_attn|attn_implementation|reference_compile|repad_logits\w*)"
    r"|(time_step_(min|max|floor)|pad_to_multiple_of|use_mamba_kernels|router_jitter_noise)"
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Record releases, and write the data file of all that were recorded."""
    parser = argparse.ArgumentParser(prog="releases", description=__doc__)
    parser.add_argument("versions", nargs="*", default=RELEASES)
    parser.add_argument("--environments", type=Path, default=Path(".venv/releases"))
    parser.add_argument("--work", type=Path, default=Path(".venv/releases/answers"))
    parser.add_argument("--output", type=Path, default=_DATA)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    for version in options.versions:
        folder = install(version, options.environments)
        record(version, folder, options.work)
    data = folded(options.work)
    options.output.write_text(text_of(data))
    print(f"{', '.join(data['releases'])}: {options.output.stat().st_size:,} bytes")


def install(version: str, environments: Path) -> Path:
    """Install a release without torch in a folder of its own, and return the folder."""
    folder = environments / f"transformers-{version}"
    ready = folder / ".ready"
    if not ready.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        wanted = [f"transformers=={version}", "sentencepiece", "protobuf"]
        subprocess.run([*command, *wanted], check=True)  # noqa: S603 - pip
        ready.touch()
    return folder.resolve()


def record(version: str, folder: Path, work: Path) -> None:
    """Ask a release for what is not answered yet."""
    paths = (folder, _TOOLS.parent, _TOOLS)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }

    def ask(*arguments: str) -> None:
        command = [sys.executable, "-P", str(_JUDGE), *arguments]
        subprocess.run(command, check=True, env=environment)  # noqa: S603 - our own program

    saves = work.resolve() / "saves"
    if not (table := work.resolve() / f"{version}.json").exists():
        ask("table", str(table))
    if version in WRITERS:
        ask("write", str(saves / version))
    if not (read := work.resolve() / f"{version}.reads.json").exists():
        written = [str(saves / writer) for writer in WRITERS if (saves / writer).exists()]
        ask("read", *written, str(read))


# --- the data file ------------------------------------------------------------------------------


def folded(work: Path) -> Entry:
    """Return the data file's object: each name with its entries, newest first."""
    tables = {
        file.stem: json.loads(file.read_bytes())
        for file in work.glob("*.json")
        if file.stem.count(".") == 2
    }
    releases = sorted(tables, key=parsed, reverse=True)
    reads = {
        version: json.loads(file.read_bytes())
        for version in releases
        if (file := work / f"{version}.reads.json").exists()
    }
    keys: dict[str, set[str]] = {}
    for table in tables.values():
        for name, entry in table["types"].items():
            keys.setdefault(name, set()).update(entry.get("defaults", ()))
    types = {version: types_of(tables[version], keys) for version in releases}
    classes = {version: classes_of(tables[version]) for version in releases}
    facts = {
        version: {
            "floats": table["floats"],
            "rope_types": table["rope_types"],
            "companions": sorted(table["companions"]["classes"]),
        }
        for version, table in tables.items()
    }
    return {
        "engine": "transformers",
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "releases": releases,
        "facts": {version: facts[version] for version in releases},
        "types": chains(types, releases),
        "classes": chains(classes, releases),
        "saves": saves_of(work / "saves", reads, releases),
        "changes": json.loads(_CHANGES.read_bytes()),
    }


def parsed(version: str) -> tuple[int, ...]:
    """Return a version's numbers."""
    return tuple(int(part) for part in version.split("."))


def types_of(table: Entry, keys: Mapping[str, set[str]]) -> dict[str, Entry]:
    """Return a release's model types, each as one flat object; `keys` are those of all releases."""
    found = {}
    for type_, entry in table["types"].items():
        flat: Entry = {"class": entry["class"]}
        if "error" in entry:
            found[type_] = flat
            continue
        reads = set(entry["read"])
        for key, value in entry["defaults"].items():
            if not _WITHOUT_EFFECT.fullmatch(key):
                flat[f"{'=' if key in reads else '-'}{key}"] = short(value)
        flat |= {
            name: entry[name]
            for name in ("aliases", "subs", "rope_defaults", "tie_in_code", "scales")
            if entry[name]
        }
        if also := sorted(keys[type_] & set(entry["mentions"]) - set(entry["defaults"])):
            flat["also"] = also
        flat |= nulls_of(flat, entry["not_null"])
        if entry.get("rope", {}).get("slots"):
            flat["rope"] = entry["rope"]["slots"]
            if needs := entry["rope"].get("needs"):
                flat["rope_needs"] = needs
        elif "rope_error" in entry:
            flat["rope"] = []
        found[type_] = flat
    return found


def nulls_of(flat: Entry, refused: Sequence[str]) -> Entry:
    """Return which keys may not be null; `strict`: those with a default, but for `nullable`."""
    filled = {key[1:] for key, value in flat.items() if key[0] in "=-" and value is not None}
    found: Entry = {}
    if filled and len(filled & {*refused}) > len(filled) // 2:
        found["strict"] = True
        if nullable := sorted(filled - {*refused}):
            found["nullable"] = nullable
        refused = [key for key in refused if key not in filled]
    if others := sorted(key for key in refused if not _WITHOUT_EFFECT.fullmatch(key)):
        found["not_null"] = others
    return found


def short(value: Any) -> Any:
    """Return a default; long lists and nested configs are left out."""
    if isinstance(value, dict):
        return {} if not value else "..."
    return value if not isinstance(value, list) or len(value) <= 64 else "..."


def classes_of(table: Entry) -> dict[str, Entry]:
    """Return a release's model classes with their ties and what they ignore."""
    found: dict[str, Entry] = {name: {} for name in table["exported"]}
    for name, entry in table["classes"].items():
        if "error" in entry:
            continue
        flat = found.setdefault(name, {})
        for flags, groups in entry["ties"].items():
            if isinstance(groups, list) and groups:
                flat[f"tie {flags}"] = groups
        for key in ("unexpected", "missing"):
            if key in entry:
                flat[key] = entry[key]
        flat["built"] = True
    return found


def chains(by_release: Mapping[str, Mapping[str, Entry]], releases: Sequence[str]) -> Entry:
    """Return the entries of each name: whole at first, then what differs, null if it is absent."""
    found: Entry = {}
    for name in sorted({name for entries in by_release.values() for name in entries}):
        chain: Entry = {}
        before: Entry | None = None
        for release in releases:
            entry = by_release[release].get(name)
            if entry == before:
                continue
            if entry is None or before is None:
                chain[release] = entry
            else:
                patch: Entry = {k: v for k, v in entry.items() if before.get(k, ...) != v}
                if gone := sorted(before.keys() - entry.keys()):
                    patch["-"] = gone
                chain[release] = patch
            before = entry
        found[name] = chain
    return found


def saves_of(saves: Path, reads: Mapping[str, Any], releases: Sequence[str]) -> Entry:
    """Return each class's layouts and what each release makes of a sound save in it."""
    newest, oldest = WRITERS
    found: Entry = {}
    names = {folder.name for writer in WRITERS for folder in (saves / writer).iterdir()}
    for name in sorted(names):
        layouts = {
            "new": kinds_in(saves / newest / name / "kinds.json"),
            "old": kinds_in(saves / oldest / name / "kinds.json"),
            "fused": kinds_of_file(saves / newest / name / "fused" / "model.safetensors"),
        }
        places = {"new": (newest, "save"), "old": (oldest, "save"), "fused": (newest, "fused")}
        present = {layout: kinds for layout, kinds in layouts.items() if kinds}
        if not present:
            continue
        common = frozenset.intersection(*present.values())
        entry: Entry = {
            "layouts": {layout: some(kinds - common) for layout, kinds in present.items()},
        }
        for release in releases:
            outcomes = {}
            for layout in present:
                writer, key = places[layout]
                answer = reads[release].get(f"{writer}/{name}", {}).get(key)
                own = reads.get(writer, {}).get(f"{writer}/{name}", {}).get(key, {})
                outcomes[layout] = outcome_of(answer, own)
            extras = reads[release].get(f"{newest}/{name}", {}).get("extras", {})
            if extras.get("unexpected"):
                outcomes["extras"] = extras["unexpected"]
            entry.setdefault("by", {})[release] = {
                layout: one for layout, one in outcomes.items() if one
            }
        before: Entry = {}
        for release in releases:
            if entry["by"][release] == before:
                del entry["by"][release]
            else:
                before = entry["by"][release]
        if not any(entry["layouts"].values()):
            entry["layouts"] = list(entry["layouts"])
        found[name] = entry
    return found


def outcome_of(answer: Entry | None, own: Entry) -> Entry | str:
    """Return what a release made of a save, shortened; {} if it read the save rightly.

    `own` is what the writer itself made of it: outputs may differ from one run to the next.
    """
    if answer is None:
        return "?"
    if "error" in answer:
        is_unknown = "model type" in answer["error"] or "has no attribute" in answer["error"]
        return (
            {}
            if is_unknown and answer["error"].startswith("config")
            else {"error": answer["error"][:100]}
        )
    found: Entry = {}
    for key in ("missing", "unexpected"):
        if names := answer.get(key):
            found[key] = len(names)
            found.setdefault("such", names[0])
    if "mismatched" in answer:
        found["mismatched"] = answer["mismatched"]
    if "forward" in answer and "forward" not in own:
        found["forward"] = answer["forward"][:80]
    if answer.get("equal") is False and own.get("equal"):
        found["equal"] = False
    return found


def some(kinds: frozenset[str]) -> list[str]:
    """Return a few kinds that tell a layout from others, spread over the sorted ones."""
    names = sorted(kinds)
    return names[:: max(1, len(names) // _MOST_KINDS)][:_MOST_KINDS]


def kinds_in(file: Path) -> frozenset[str]:
    """Return the kinds that a save has; none if there is no save."""
    return frozenset(json.loads(file.read_bytes())) if file.exists() else frozenset()


def kinds_of_file(file: Path) -> frozenset[str]:
    """Return the kinds of a file of weights; none if there is no file."""
    from safetensors import safe_open  # noqa: PLC0415 - of this environment only

    if not file.exists():
        return frozenset()
    with safe_open(file, "pt") as opened:
        return frozenset(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in opened.keys())  # noqa: SIM118


def text_of(data: Entry) -> str:
    """Return the data file: a line for each entry."""
    lines = []
    for key, value in data.items():
        if isinstance(value, dict) and key in {"types", "classes", "saves", "facts"}:
            rows = (f"{json.dumps(name)}:{compact(one)}" for name, one in value.items())
            lines.append(f"{json.dumps(key)}:{{\n" + ",\n".join(rows) + "\n}")
        else:
            lines.append(f"{json.dumps(key)}:{compact(value)}")
    return "{" + ",\n".join(lines) + "}\n"


def compact(value: Any) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), sort_keys=False)


if __name__ == "__main__":
    main()

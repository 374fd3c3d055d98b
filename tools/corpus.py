"""Audit a corpus of real checkpoints' metadata: `python tools/corpus.py [FOLDER]`.

One folder each: config.json, the index (perhaps gzipped), files.json (every weight file and its
size) and header_FILE.bin (the head of a real file); no weights. Ends with 1 where a healthy
checkpoint does not close or a known fault is not named, and with 0 where there is no corpus.
"""

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from auditor import Reason, Report, Unaudited
from auditor.analytic import read_config
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.snapshot import (
    BaseModel,
    RepoFile,
    Snapshot,
    Source,
    TextFile,
    WeightHeader,
)

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "corpus"
INDEXES = (  # the first that is there
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "diffusion_pytorch_model.safetensors.index.json",
)
CONFIGS = ("config.json", ADAPTER_CONFIG)  # the first that is there
# The bases of the corpus's adapters. Both configs are the defaults of their config classes.
BASES = {
    "distilbert-base-uncased": {"model_type": "distilbert"},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
}
WIDTHS = {"F32": 4, "BF16": 2, "F16": 2}  # bytes
ROOM = 1024  # bytes of a file around each tensor, at the most: a header's entry, a zip's record

# Plain, complete, of a class with a closed form: every name is accounted for, and the total is
# the expected bytes and those of the buffers that are named.
HEALTHY = frozenset(
    {
        "2prymmal-yi1.5-6b-slerp",
        "3prymmal-phi3-3b-slerp",
        "atom-7b",
        "bart-large-cnn-in-a-repo-named-gpt2",
        "base-gpt-j-6b",
        "bloom",
        "facebook-opt-1-3b-copy",
        "gemma",
        "gpt2-tigrinya-lora",
        "internlm-20b",
        "lora-imdb-distilbert",
        "mithoon-2b",
        "mixtral-8x7b-instruct-v0.1",
        "mixtral-dolphin-v2.5",
        "olmocr",
        "openllama-chinese-english-3b",
        "paligemma.weights",
        "phi3-39-shards-of-micro",
        "qwen-2.5-vl-7b-instruct-lexiq",
        "qwen3-mlx",
        "reflection-llama-3.1-70b",
        "tiny-llm-cicd",
        "tiny-llm-cicd-0902",
        "vicuna-7b-delta-v0",
        "whisper-medium",
        "zephyr-7b-beta-bin-and-safetensors",
    }
)

HEALTHY_BY_THE_ORACLE = frozenset({"adept-fuyu-8b"})

# What is wrong with the others, by arithmetic outside of this project: the kind of the finding
# that has to say it, and what it has to say in its reason or in one of its names. "note": what is
# worth saying and no fault.
FAULTS: dict[str, tuple[tuple[str, str], ...]] = {
    "ain-model": (
        ("bad-size", "model-00007-of-00007.safetensors is empty"),
        ("wrong-dtype", "exactly 4 bytes a parameter, the config declares BF16"),
    ),
    "all-minilm-l6-v2-truncated": (("bad-size", "90,852,864"),),
    "codefuse-codellama-34b": (("bad-index", "Git LFS pointer"),),
    "facebook-opt-1-3b-copy-b45c": (("wrong-dtype", "the config declares F32"),),
    "falcon-180b-chat": (("duplicate", "lm_head.weight"),),
    "fyehealth-1-3": (("bad-config", "Git LFS pointer"), ("bad-index", "Git LFS pointer")),
    "gemma-efdb": (("wrong-dtype", "exactly 2 bytes a parameter, the config declares F32"),),
    "kimi2-pcl": (
        ("missing", "model.layers.0.self_attn.q_a_proj.weight"),
        ("unexpected", "model.layers.0.self_attn.k_proj.weight"),
    ),
    "layoutlm-wikipedia-ja": (
        ("wrong-dtype", "exactly 2 bytes a parameter, the config declares F32"),
    ),
    "lisa-7b": (("bad-config", "continues after the end of its JSON"),),
    "llama-3.2-3b-huggingface-shard0": (("bad-index", "206 of the 254 shards"),),
    "medgemma-27b-it": (("wrong-total", "+1,409,630,208, which is language_model.lm_head.weight"),),
    "minicpm-v-2-6-rkllm": (
        ("unexpected", "vpm.embeddings.patch_embedding.weight"),
        ("unexpected", "resampler.attn.in_proj_weight"),
    ),
    "qwen3.5-18b-reap-a3b-coding": (
        ("bad-config", "Qwen3_5MoeForConditionalGeneration"),  # over a config without an eye
        ("note", "mtp_num_hidden_layers is 1, and no layer for drafting tokens is stored"),
    ),
    "qwen36": (("bad-index", "total_size is 0"),),
    "redpajama-incite-7b-base": (("bad-index", "the expected shapes take"),),
    "scicore-omics": (("bad-index", "model-gene-project.pt"),),
    "stable-diffusion-3.5-large": (("bad-config", "another model than the weights"),),
}

Outcome = Report | Unaudited


# --- reading ----------------------------------------------------------------------------------


def content(folder: Path, name: str) -> bytes | None:
    """A file of the folder, gzipped or not; None: there is none."""
    for path, read in ((folder / name, bytes), (folder / f"{name}.gz", gzip.decompress)):
        if path.exists():
            return read(path.read_bytes())
    return None


def snapshot(folder: Path) -> Snapshot:
    """What an audit of that checkpoint would have read, as far as the folder has it."""
    listing = json.loads(content(folder, "files.json") or b"{}").get("files", [])
    sizes = {file["name"]: file.get("size") for file in listing}
    found = ((name, content(folder, name)) for name in INDEXES)
    index = next((TextFile(name=name, content=text) for name, text in found if text), None)
    name = next((one for one in CONFIGS if content(folder, one) is not None), CONFIGS[0])
    config = content(folder, name)
    heads = tuple(_heads(folder, sizes))
    return Snapshot(
        model=folder.name,
        commit=None,
        source=Source.FOLDER,
        origin="read from the corpus",
        files=tuple(RepoFile(name=name, size=sizes[name]) for name in sorted(sizes)),
        config=None if config is None else TextFile(name=name, content=config),
        index=index,
        headers=heads,
        base=_base(config) if config and name == ADAPTER_CONFIG else None,
        unopened=_absent(index, sizes) if heads else (),
        partial=True,
    )


def _base(settings: bytes) -> BaseModel:
    """The base that an adapter names, which the corpus does not have."""
    name = json.loads(settings)["base_model_name_or_path"]
    config = TextFile(name="config.json", content=json.dumps(BASES[name]).encode())
    return BaseModel(model=name, origin="the defaults of its config class", config=config)


def _heads(folder: Path, sizes: dict[str, int | None]) -> Iterator[WeightHeader]:
    """The headers that the folder has, and the files of no bytes, whose head is known."""
    heads = {path.name[len("header_") : -len(".bin")]: path for path in folder.glob("header_*")}
    for name in sorted(heads.keys() | {name for name, size in sizes.items() if size == 0}):
        head = heads[name].read_bytes() if name in heads else b""
        yield WeightHeader(name=name, size=sizes.get(name), prefix=head)


def _absent(index: TextFile | None, sizes: dict[str, int | None]) -> tuple[str, ...]:
    """The shards that the repository's listing does not have."""
    shards = json.loads(index.content)["weight_map"].values() if index else ()
    return tuple(sorted(set(shards) - set(sizes)))


def known(folder: Path) -> dict[str, str]:
    """Entry -> what the corpus says of it: the table in its README."""
    rows: dict[str, str] = {}
    for line in (folder / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 2:
            for entry in cells[0].split(","):
                name = entry.split(" (")[0].strip()
                rows[name] = f"{rows[name]}; {cells[1]}" if name in rows else cells[1]
    return rows


# --- judging ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One entry, its outcome, and whether that is what is known of it."""

    entry: str
    outcome: Outcome
    closes: bool
    unnamed: tuple[str, ...]  # known faults that no finding says
    arithmetic: str


def judge(folder: Path) -> Judged:
    shot = snapshot(folder)
    outcome = examine(shot, Options(requested=folder.name))
    arithmetic, closes = _closing(shot, outcome)
    return Judged(
        entry=folder.name,
        outcome=outcome,
        closes=closes and outcome.verdict != "findings",
        unnamed=tuple(
            f"{kind}: {needle}"
            for kind, needle in FAULTS.get(folder.name, ())
            if not _says(outcome, kind, needle)
        ),
        arithmetic=arithmetic,
    )


def _says(outcome: Outcome, kind: str, needle: str) -> bool:
    if kind == "note":
        return any(needle in note for note in outcome.notes)
    return any(
        finding.kind == kind and (needle in finding.reason or needle in finding.names)
        for finding in outcome.findings
    )


def _closing(shot: Snapshot, outcome: Outcome) -> tuple[str, bool]:
    """The expected size beside the stated one, and whether they are the same."""
    if isinstance(outcome, Unaudited):
        if outcome.reason is Reason.NO_WEIGHTS and outcome.expected is not None:
            return _lone_file(shot, outcome)
        return "", False
    sums = [note for note in outcome.notes if re.match(r"total_size [\d,.]+ = ", note)]
    if sums:
        return sums[0], True
    if outcome.expected is None or outcome.observed is None:
        return "", False
    expected = outcome.expected.parameters
    if outcome.residual is None:
        return f"{expected:,} parameters expected", False
    line = f"{expected:,} parameters expected, {outcome.observed.parameters:,} stored"
    return line, outcome.residual == 0


def _lone_file(shot: Snapshot, outcome: Unaudited) -> tuple[str, bool]:
    """Of a weight file that is not here, only the size is known: tensors and a little more."""
    assert shot.config is not None
    assert outcome.expected is not None
    width = WIDTHS[read_config("config.json", shot.config.content).dtype or "F32"]
    sizes = {file.name: file.size for file in shot.files}
    name = next((one for one in ("model.safetensors", "pytorch_model.bin") if one in sizes), None)
    size = sizes.get(name or "")
    if size is None:
        return "", False
    over = size - outcome.expected.parameters * width
    line = f"{name} {size:,} = {outcome.expected.parameters:,} x {width} {over:+,}"
    return line, 0 <= over <= ROOM * outcome.expected.tensors


# --- telling ----------------------------------------------------------------------------------


def rows(judged: Judged, said: str) -> Iterator[str]:
    outcome = judged.outcome
    verdict = outcome.reason if isinstance(outcome, Unaudited) else outcome.verdict
    kinds: Counter[str] = Counter()
    for finding in outcome.findings:
        kinds[finding.kind] += len(finding.names)
    counted = ", ".join(
        f"{kind} {count}" for kind, count in kinds.items() if kind != "other-weights"
    )
    mark = "  " if not failures(judged) else "!!"
    yield f"{mark} {judged.entry:35.35} {outcome.model_type or '-':18.18} {verdict:21} {counted}"
    if judged.arithmetic:
        yield f"     sum: {judged.arithmetic}"
    for finding in outcome.findings:
        if finding.severity in {"error", "warning"}:
            yield f"     {finding.kind}: {finding.reason[:200]}"
    yield from (f"     note: {note}" for note in outcome.notes if note != judged.arithmetic)
    if said:
        yield f"     known: {said}"
    for failure in failures(judged):
        yield f"     FAILS: {failure}"


def failures(judged: Judged) -> tuple[str, ...]:
    unclosed = _healthy(judged) and not judged.closes
    return (*(("it does not close",) * unclosed), *judged.unnamed)


def _healthy(judged: Judged) -> bool:
    """Whether it has to close: without the oracle nothing is expected of what only it knows."""
    known = judged.outcome.expected is not None
    return judged.entry in HEALTHY or (judged.entry in HEALTHY_BY_THE_ORACLE and known)


def told(folder: Path) -> tuple[list[str], bool]:
    """The table and its summary, and whether all is as it is known to be."""
    said = known(folder)
    paths = sorted(path.parent for path in folder.glob("*/files.json*"))
    every = [judge(path) for path in paths]
    lines = [line for judged in every for line in rows(judged, said.get(judged.entry, ""))]
    healthy = [judged for judged in every if _healthy(judged)]
    faults = sum(len(FAULTS.get(judged.entry, ())) for judged in every)
    named = faults - sum(len(judged.unnamed) for judged in every)
    lines += [
        "",
        f"{len(every)} entries",
        f"healthy that close: {sum(one.closes for one in healthy)} of {len(healthy)}",
        f"known faults found and named: {named} of {faults}",
    ]
    return lines, not any(map(failures, every))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else BESIDE
    if not (folder / "README.md").is_file():
        sys.stdout.write("no corpus here: skipped\n")
        return
    lines, good = told(folder)
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

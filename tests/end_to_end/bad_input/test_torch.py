"""Torch files that are broken or hostile: each ends in a finding, and nothing in it is run."""

import json
import tarfile
import tempfile
import zipfile
from itertools import chain, cycle, islice, repeat
from pathlib import Path

import pytest
from support.bad_input.making import CONFIG, GOOD_CONFIG, TENSORS, found, whole
from support.bad_input.making import assert_says as said
from support.bad_input.running import CLEAN, FINDINGS
from support.torch_files import (
    legacy_bytes,
    lengths,
    pickled,
    state,
    tensor,
    text,
    torch_bytes,
    zipped,
)

WEIGHTS = "pytorch_model.bin"
BODY = b"".join(text(name) + tensor(str(n), *one) for n, (name, one) in enumerate(TENSORS.items()))
GOOD = torch_bytes(TENSORS)
MANY = b"\x80\x02(" + b"N" * 8_000_000 + b"t."
# The costliest that was found to fit: dicts, each remembered, in a list.
COSTLY = b"\x80\x04](" + b"}\x94" * 190_000 + b"N" * 5_000 + b"e."
NESTED = b"\x80\x02" + b"]" * 190_000 + b"a" * 189_999 + b"."


def doubling(levels: int = 60) -> bytes:
    """A dict of two names for a dict of two names for ...; 2^60 tensors in 3 kB."""
    content = b"\x80\x02" + tensor("0", "F32", (1,)) + b"q\0"
    for level in range(levels):
        below = b"h" + bytes([level])
        content += b"}q" + bytes([level + 1]) + b"(" + text("a") + below + text("b") + below + b"u"
    return content + b"."


def weights(content: bytes):
    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / CONFIG).write_bytes(GOOD_CONFIG)
        (folder / WEIGHTS).write_bytes(content)

    return make


def calling(opcodes: bytes) -> bytes:
    """The good state dict, and in it the result of those opcodes."""
    value = b"\x80\x02}(" + text("x") + opcodes + BODY + b"u."
    return zipped(value, lengths(TENSORS))


RUN = "touch proof"  # in the folder where the audit runs, which must stay empty
SLICE = b"c__builtin__\nslice\nNK\1N\x87R"
TAR = tarfile.TarInfo("storages").tobuf() + bytes(1024)
CALL = b"cposix\nsystem\n(" + text(RUN) + b"tR"

ROWS = (
    found("a call of os.system", weights(calling(CALL)), "unsafe", "posix.system..touch proof"),
    found(
        "a call by INST",
        weights(calling(b"(" + text(RUN) + b"iposix\nsystem\n")),
        "unsafe",
        "may run code: not followed, it has a pickle that uses the opcode INST",
    ),
    found("a name with escapes", weights(calling(b"c\x1b[2J\x07\nevil\r\n")), "unsafe", r"\\x1b"),
    found(
        "a call in the keys of a legacy file",
        weights(legacy_bytes(state({}), [])[:-1] + CALL + b"."),
        "unsafe",
        "posix.system",
    ),
    found("a second pickle", weights(b"\x80\2N." + CALL + b"."), "unsafe", "bytes behind its"),
    found("a slice", weights(calling(SLICE)), "bad-header", "refuses builtins.slice; save"),
    found("2^60 tensors", weights(zipped(doubling(), [4])), "bad-header", "holds .* more than"),
    found("lists in lists", weights(zipped(NESTED)), "bad-header", "is nested more than 64"),
    found("too many opcodes", weights(zipped(MANY)), "unsafe", "takes more than 1,200,000 steps"),
    found(
        "all the bounds at once", weights(zipped(COSTLY)), "bad-header", "holds more than 120,000"
    ),
    found(
        "a zip bomb",
        weights(zipped(MANY * 20, pack=zipfile.ZIP_DEFLATED)),
        "unsafe",
        "has a pickle of 160,000,... bytes, at most 8,388,608",
    ),
    found(
        "a dimension of 2^62",
        weights(zipped(pickled({"a": tensor("0", "F32", (2**62, 2), numel=1)}), [4])),
        "bad-header",
        "more numbers than a tensor can have",
    ),
    found("a cut-off archive", weights(GOOD[:-9]), "bad-header", "it is truncated"),
    found("a tar archive", weights(TAR), "unsafe", "not followed, it is a tar archive"),
)


def test_a_file_from_which_torch_runs_something_is_unsafe(audit, tmp_path):
    """Each holds the good state dict, which a reader that differs from torch's would read alone."""
    hostile_files = pytest.importorskip("fuzz.hostile_files", reason="needs torch's reader")
    held = hostile_files.around(state(TENSORS), [bytes(length) for length in lengths(TENSORS)])
    for number, content in enumerate(held.values()):
        weights(content)(folder := tmp_path / f"input{number}")
        ran = audit(str(folder), "--format", "json")
        assert ran.code == FINDINGS
        assert "unsafe" in {one["kind"] for one in ran.outcome["findings"]}


def test_a_hostile_torch_file_ends_in_a_finding(subtests, audit, tmp_path):
    for row in ROWS:
        with subtests.test(name=row.name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            row.spoil(place / "input")
            said(audit(str(place / "input"), "--format", "json"), row)


def test_a_checkpoint_whose_pickle_calls_is_tallied_all_the_same(audit, tmp_path):
    weights(calling(CALL))(tmp_path / "input")
    outcome = audit(str(tmp_path / "input"), "--format", "json").outcome
    assert outcome["observed"]["tensors"] == len(TENSORS)
    assert outcome["residual"] == 0
    [finding] = outcome["findings"]
    [line] = finding["imports"]
    assert line.startswith(f"posix.system('{RUN}') at byte ")


def test_a_file_without_a_call_audits_clean(subtests, audit, tmp_path):
    for spoilt in [GOOD, calling(b"N")]:
        with subtests.test(spoilt=spoilt):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            weights(spoilt)(place / "input")
            assert audit(str(place / "input")).code == CLEAN


# Every place in which a torch file or a pickle can lie, beside sound safetensors
PLACES = (
    WEIGHTS,
    "pytorch_model-00001-of-00002.bin",
    "pytorch_model.fp16.bin",
    "model.pt",
    "consolidated.00.pth",
    "original/consolidated.00.pth",
    "adapter_model.bin",
    "unet/diffusion_pytorch_model.bin",
    "last.ckpt",
    "training_args.bin",
    "checkpoint-500/optimizer.pt",
    "checkpoint-500/rng_state_0.pth",
    "model_head.pkl",
    "head.joblib",
    "vocab.PICKLE",
)
FORMS = {
    "a call": calling(CALL),
    "not followed": calling(b"(" + text(RUN) + b"iposix\nsystem\n"),
    "a bare pickle": b"\x80\x02" + CALL + b".",
    "another archive": zipped(state({}), top="a").replace(b"a/version", b"a/versiox"),
}


def beside(folder: Path, contents) -> Path:
    """Sound safetensors, and at each place the next of the contents."""
    whole(folder)
    for content, place in zip(contents, PLACES, strict=False):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    return folder


def test_an_unsafe_pickle_next_to_sound_safetensors_is_an_error(subtests, audit, tmp_path):
    for start in range(len(FORMS)):
        with subtests.test(start=start):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            contents = islice(cycle(FORMS.values()), start, None)
            folder = beside(place / "input", contents)
            ran = audit(str(folder), "--format", "json", "--fail-on", "error")
            assert ran.code == FINDINGS
            unsafe = [one["file"] for one in ran.outcome["findings"] if one["kind"] == "unsafe"]
            assert sorted(unsafe) == sorted(PLACES)


def test_a_harmless_pickle_next_to_sound_safetensors_is_clean(audit, tmp_path):
    harmless = b"\x80\x02" + SLICE + b"."
    folder = beside(tmp_path / "input", chain([GOOD], repeat(harmless)))
    assert audit(str(folder), "--fail-on", "error").code == CLEAN


INDEX = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(TENSORS, "a.bin")}
# What is audited, in each way of finding it: the files, and the one that is hostile
AUDITED = {
    "the weights": ({}, WEIGHTS),
    "a shard": ({f"{WEIGHTS}.index.json": json.dumps(INDEX).encode()}, "a.bin"),
    "the only variant": ({}, "pytorch_model.fp16.bin"),
    "an adapter": ({"adapter_config.json": b'{"peft_type": "LORA"}'}, "adapter_model.bin"),
    "a component": (
        {"model_index.json": b'{"_class_name": "P", "unet": ["diffusers", "UNet2DModel"]}'},
        "unet/diffusion_pytorch_model.bin",
    ),
}


def test_audited_weights_that_may_run_code_are_an_error(subtests, audit, tmp_path):
    for name, (files, hostile) in AUDITED.items():
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = place / "input"
            config = {} if "adapter_config.json" in files else {CONFIG: GOOD_CONFIG}
            for file, data in {**config, **files, hostile: FORMS["not followed"]}.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(data)
            ran = audit(str(folder), "--format", "json", "--fail-on", "error")
            assert ran.code == FINDINGS
            outcomes = [ran.outcome, *ran.outcome["parts"]]
            unsafe = [
                one for each in outcomes for one in each["findings"] if one["kind"] == "unsafe"
            ]
            assert [one["file"] for one in unsafe] == [hostile]

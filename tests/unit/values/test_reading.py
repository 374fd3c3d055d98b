"""What is read of local files: every number once, whoever reads it, and nothing that changed."""

import hashlib
import os
import shutil
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bad_input.making import WEIGHTS, whole
from support.examples import examples
from support.value_files import bf16, write_numbers

import auditor
from auditor.audit import pipeline
from auditor.audit.pipeline import examine
from auditor.downloader import local_file, local_folder
from auditor.errors import SourceError
from auditor.values import reading
from auditor.values.tensor_bytes import opened, place_tensors

SIZES = st.sampled_from([1, 2, 3, 1023, 4096, 131_072, 131_073, 300_000])
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0]


def numbers_of(placed, **options):
    with opened(placed) as data:
        return reading.NumbersReader(data, **options).read(placed)


def read(path, **options):
    snapshot = local_folder.read(path, str(path))
    placed, left_out = place_tensors(snapshot)
    assert not left_out
    found = numbers_of(placed, **options)
    return {one.name: one for one in found}


@given(
    size=SIZES,
    dtype=st.sampled_from(["float64", "float32", "float16", "int8", "uint16", "int64"]),
    special=st.lists(st.sampled_from(SPECIAL), max_size=4),
    seed=st.integers(0, 9),
    threads=st.integers(1, 3),
)
@examples(60)
def test_what_is_counted_is_what_numpy_counts(  # noqa: PLR0913, PLR0917 - drawn
    tmp_path_factory, size, dtype, special, seed, threads
):
    rng = np.random.default_rng(seed)
    numbers = (50 * rng.standard_normal(size)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        for value in special:
            numbers[rng.integers(size)] = value
    path = write_numbers(tmp_path_factory.mktemp("numbers") / "a.safetensors", {"a": numbers})
    found = read(path, threads=threads, statistics=True)["a"]
    finite = numbers[np.isfinite(numbers)].astype(np.float64)
    assert (found.read, found.numbers) == (size, size)
    assert found.nan == np.isnan(numbers).sum()
    assert found.inf == np.isinf(numbers).sum()
    assert found.nonzero == bool((numbers != 0).any())
    assert found.zeros == (numbers == 0).sum()
    if len(finite):
        assert (found.minimum, found.maximum) == (finite.min(), finite.max())
        assert found.absmax == np.abs(finite).max()
        assert found.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-9)
        assert found.std == pytest.approx(finite.std(), rel=1e-9, abs=1e-12)
    else:
        assert (found.minimum, found.mean, found.absmax) == (None, None, None)


def test_bf16_is_counted_as_the_float32_whose_upper_half_it_is(subtests, tmp_path):
    for statistics in [False, True]:
        with subtests.test(statistics=statistics):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            numbers = np.array([1.5, -3.0, 0.0, np.nan, np.inf, -0.0], np.float32)
            raw = bf16(numbers)
            path = write_numbers(place / "a.safetensors", {"a": ("BF16", raw.shape, raw.tobytes())})
            found = read(path, statistics=statistics)["a"]
            assert (found.nan, found.inf, found.absmax, found.nonzero) == (1, 1, 3.0, True)
            assert found.zeros == (2 if statistics else None)


NARROW = [  # dtype, bytes, NaN, Inf, largest magnitude
    ("F8_E4M3", [0x7F, 0x38, 0x80], 1, 0, 1.0),
    ("F8_E5M2", [0x7C, 0x7D, 0x3C], 1, 1, 1.0),
    ("F8_E4M3FNUZ", [0x80, 0x40, 0x00], 1, 0, 1.0),
    ("F8_E8M0", [0xFF, 0x7F, 0x80], 1, 0, 2.0),
    ("F4", [0x21, 0x07, 0x00], 0, 0, 6.0),
    ("BOOL", [0, 1, 0], 0, 0, 1.0),
]


def test_narrow_dtypes_are_counted(tmp_path):
    shapes = {"F4": (6,)}
    tensors = {dtype: (dtype, shapes.get(dtype, (3,)), bytes(data)) for dtype, data, *_ in NARROW}
    found = read(write_numbers(tmp_path / "a.safetensors", tensors))
    assert [(one.nan, one.inf, one.absmax) for one in found.values()] == [
        tuple(expected) for _, _, *expected in NARROW
    ]
    assert [one.numbers for one in found.values()] == [3, 3, 3, 3, 6, 3]


@contextmanager
def when_read(monkeypatch, do):
    """Calls `do` once, before the first block is read."""
    fill, left = local_file.RegularFile.read_into, [do]

    def changed(self, block, at):
        while left:
            left.pop()()
        fill(self, block, at)

    monkeypatch.setattr(local_file.RegularFile, "read_into", changed)
    yield
    assert not left


def replace_by_other_numbers(path):
    """Move a file with the same header, size and time of modification over the path."""
    before = path.stat()
    other = path.with_name("other")
    content = path.read_bytes()
    other.write_bytes(content[:-8] + bytes(byte ^ 1 for byte in content[-8:]))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


def write_other_numbers(path):
    """Write into the file, and set back its time of modification."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"\1" * 8)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (write_other_numbers, "changed while it was read"),
        (lambda path: os.truncate(path, 2000), "became shorter while it was read"),
        (lambda path: path.write_bytes(b"\0" * path.stat().st_size), "changed while it was read"),
    ],
)
def test_a_file_that_changes_while_it_is_read_is_an_outcome(tmp_path, monkeypatch, change, why):
    path = write_numbers(tmp_path / "a.safetensors", {"a": np.ones(200_000, np.float32)})
    os.utime(path, (1, 1))
    with when_read(monkeypatch, lambda: change(path)):
        outcome = auditor.audit(str(path), values=True)
    assert isinstance(outcome, auditor.Unaudited)
    assert outcome.reason is auditor.Reason.UNREADABLE
    assert why in outcome.detail


@pytest.mark.parametrize("change", [replace_by_other_numbers, write_other_numbers])
@pytest.mark.parametrize("options", [{"values": True}, {"base": "base"}, {"verify": True}])
def test_a_file_that_is_replaced_after_its_header_was_read_is_an_outcome(
    tmp_path, monkeypatch, change, options
):
    folder = tmp_path / "model"
    path = write_numbers(folder / "model.safetensors", {"a": np.ones(8, np.float32)})
    (folder / "config.json").write_text('{"model_type": "bert"}')
    if "base" in options:
        options = {"base": str(shutil.copytree(folder, tmp_path / "base"))}
    note = folder / ".cache/huggingface/download/model.safetensors.metadata"
    note.parent.mkdir(parents=True)
    note.write_text(f"{'a' * 40}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n0\n")

    def examined(snapshot, asked):
        change(path)
        return examine(snapshot, asked)

    monkeypatch.setattr(pipeline, "examine", examined)
    outcome = auditor.audit(str(folder), **options)
    assert isinstance(outcome, auditor.Unaudited)
    assert outcome.reason is auditor.Reason.UNREADABLE
    assert "since it was listed; run it again" in outcome.detail
    assert outcome.values is None


def one_tensor(folder):
    path = write_numbers(folder / "a.safetensors", {"a": np.ones(8, np.float32)})
    return path, place_tensors(local_folder.read(path, str(path)))[0]


def test_a_file_that_is_gone_by_then_is_an_outcome(tmp_path):
    path, placed = one_tensor(tmp_path)
    path.unlink()
    with pytest.raises(SourceError, match="does not exist"):
        numbers_of(placed)


def test_a_tensor_behind_the_end_of_its_file_is_reported_and_not_read(tmp_path):
    whole = {"a": np.ones(8, np.float32), "b": np.ones(8, np.float32)}
    path = write_numbers(tmp_path / "a.safetensors", whole)
    os.truncate(path, path.stat().st_size - 4)
    outcome = auditor.audit(str(path), values=True)
    assert [one.name for one in outcome.values.tensors] == ["a"]
    assert any("ends before them" in one for one in outcome.unchecked)


@pytest.mark.parametrize("lacking", [("preadv",), ("pread", "preadv", "SEEK_DATA", "SEEK_HOLE")])
def test_threads_read_the_same_numbers_on_a_platform_with_fewer_system_calls(
    lacking, tmp_path, monkeypatch
):
    rng = np.random.default_rng(0)
    numbers = {f"t{number}": rng.standard_normal(70_000) for number in range(40)}
    path = write_numbers(tmp_path / "a.safetensors", numbers)
    expected = read(path, threads=1, statistics=True)
    for name in lacking:
        monkeypatch.delattr(os, name)
    assert read(path, threads=4, statistics=True) == expected


def test_without_numpy_the_install_command_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(auditor.UsageError, match="needs numpy: pip install numpy"):
        auditor.audit("someone/model", values=True)


def test_the_table_of_values_reads_back(tmp_path):
    path = write_numbers(tmp_path / "a.safetensors", {"a": np.arange(4, dtype=np.float32)})
    frame = auditor.audit(str(path), values=True).values_frame()
    assert frame.loc[0, ["name", "numbers", "absmax"]].tolist() == ["a", 4, 3.0]
    assert frame["zeros"].isna().all()
    assert auditor.audit(str(path), statistics=True).values_frame()["mean"].tolist() == [1.5]


# --- threads: small work is done in the calling thread ------------------------------------------


@pytest.fixture
def no_thread(monkeypatch):
    """A process in which no thread can be started."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.parametrize("choices", [{}, {"values": True, "statistics": True}])
def test_a_small_folder_has_the_same_report_without_threads(choices, tmp_path, request):
    folder = str(whole(tmp_path / "m"))
    expected = auditor.audit(folder, **choices)
    assert isinstance(expected, auditor.Report)
    request.getfixturevalue("no_thread")
    assert auditor.audit(folder, **choices) == expected


@pytest.mark.usefixtures("no_thread")
def test_small_files_are_verified_without_threads(tmp_path):
    folder = whole(tmp_path / "m")
    notes = folder / ".cache/huggingface/download"
    notes.mkdir(parents=True)
    digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    (notes / f"{WEIGHTS}.metadata").write_text(f"{'0' * 40}\n{digest}\n1732280000.0\n")
    assert "1 of 1 files" in auditor.audit(str(folder), verify=True).notes[-1]


@pytest.mark.usefixtures("no_thread")
def test_more_work_raises_if_no_thread_can_be_started(tmp_path):
    _, placed = one_tensor(tmp_path)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        numbers_of(placed, threads=2)


def test_a_thread_that_gets_no_memory_ends_the_reading(tmp_path, monkeypatch):
    _, placed = one_tensor(tmp_path)

    def no_memory(*_args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(reading.np, "empty", no_memory)
    for threads in (None, 2):
        with pytest.raises(MemoryError):
            numbers_of(placed, threads=threads)

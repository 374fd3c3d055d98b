"""Small local work is done in the calling thread: a thread may be refused, or may never begin."""

import hashlib
import threading

import numpy as np
import pytest
from support.bad_input.making import WEIGHTS, whole
from support.value_files import write_numbers

import auditor
from auditor.downloader import local_folder
from auditor.values import reading
from auditor.values.tensor_bytes import opened, place_tensors


def numbers_of(placed, **options):
    with opened(placed) as data:
        return reading.NumbersReader(data, **options).read(placed)


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
    path = write_numbers(tmp_path / "a.safetensors", {"a": np.zeros(8, np.float32)})
    snapshot = local_folder.read(path, str(path))
    placed, _ = place_tensors(snapshot)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        numbers_of(placed, threads=2)


def test_a_thread_that_gets_no_memory_ends_the_reading(tmp_path, monkeypatch):
    path = write_numbers(tmp_path / "a.safetensors", {"a": np.zeros(8, np.float32)})
    snapshot = local_folder.read(path, str(path))
    placed, _ = place_tensors(snapshot)

    def no_memory(*_args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(reading.np, "empty", no_memory)
    for threads in (None, 2):
        with pytest.raises(MemoryError):
            numbers_of(placed, threads=threads)

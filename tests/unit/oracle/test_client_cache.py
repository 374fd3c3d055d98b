"""Answers that are kept on disk: found again, ignored where broken, and never too many."""

import os

import pytest

from auditor.oracle import client as cache


def test_a_cached_answer_is_read_again(tmp_path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    assert cache.read_answer(folder, "key") is None
    cache.keep_answer(folder, "key", {"tensors": [["a", [1, 2]]]})
    assert cache.read_answer(folder, "key") == {"tensors": [["a", [1, 2]]]}
    assert [path.name for path in folder.iterdir()] == ["key.json"]


def test_a_broken_file_or_a_folder_that_cannot_be_written_is_ignored(tmp_path) -> None:
    for content in (b"", b"{", b"\xff\xfe", b"[" * 200_000):
        (tmp_path / "key.json").write_bytes(content)
        assert cache.read_answer(tmp_path, "key") is None
    (tmp_path / "file").write_bytes(b"")
    cache.keep_answer(tmp_path / "file", "key", {})
    assert cache.read_answer(tmp_path / "file", "key") is None


def _aged(folder, *ages: int) -> None:
    """The files 0, 1, ... of 100 bytes each, so many seconds old."""
    for number, age in enumerate(ages):
        path = folder / f"{number}.json"
        path.write_bytes(b'"' + b"x" * 98 + b'"')
        os.utime(path, (1_000_000 - age, 1_000_000 - age))


@pytest.mark.parametrize(("limit", "most"), [("MOST_FILES", 3), ("MOST_BYTES", 220)])
def test_the_least_recently_used_answers_are_removed(tmp_path, monkeypatch, limit, most) -> None:
    monkeypatch.setattr(cache, limit, most)
    _aged(tmp_path, 30, 10, 20)
    assert cache.read_answer(tmp_path, "0") is not None  # and is the youngest now
    cache.keep_answer(tmp_path, "new", 1)
    assert {path.stem for path in tmp_path.iterdir()} == {"0", "1", "new"}


def test_an_answer_that_is_too_large_is_not_cached(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(cache, "MOST_BYTES_OF_ONE", 5)
    cache.keep_answer(tmp_path, "small", "123")
    cache.keep_answer(tmp_path, "large", "1234")
    assert cache.read_answer(tmp_path, "large") is None
    (tmp_path / "large.json").write_bytes(b'"1234"')
    assert cache.read_answer(tmp_path, "large") is None
    assert cache.read_answer(tmp_path, "small") == "123"

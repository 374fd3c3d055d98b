"""Law 14: whatever runs is unsafe, and a file that is called sound torch loads.

The judges are torch's own reader of archives, CPython's unpickler in C with every import refused,
and torch.load(weights_only=True) itself: tools/fuzz, which `make fuzz` runs at length.
"""

import io
import pickle
import warnings
import zipfile

import pytest
from support.examples import one_in

torch = pytest.importorskip("torch", reason="the judge of these files")
pytest.importorskip("safetensors")

from fuzz import programs  # noqa: E402 - needs torch
from fuzz.bounds import bounded_memory  # noqa: E402
from fuzz.hostile_files import around  # noqa: E402
from fuzz.judges import of_file  # noqa: E402
from fuzz.run import target_of  # noqa: E402
from fuzz.target import READ, case_of  # noqa: E402
from fuzz.torch_law import judge_pickle, read  # noqa: E402

from auditor.containers.weight_formats import Table, UnsafeFileError  # noqa: E402

pytestmark = pytest.mark.oracle

GOOD = programs.saved()[0]
HOSTILE = around(*GOOD)


@pytest.mark.parametrize(("name", "cases"), [("torch-pickles", 10_000), ("torch-files", 8_000)])
def test_the_law_holds_whatever_is_changed(name, cases):
    target = target_of(name)
    broken = []
    with bounded_memory():
        for number in one_in(4, range(cases)):
            verdict = target.judge(case_of(target, 1, number))
            if verdict.fault:
                broken.append((number, verdict))
    assert broken == []


def test_no_sound_file_of_torch_save_is_refused():
    """A file is sound if torch.load takes it by default: protocol 4 and 5 are not."""
    verdicts = set()
    for content in programs.files():
        table = read(content)
        assert isinstance(table, Table)
        assert (table.size_faults, table.imports) == ((), ())
        assert table.tensors
        sound = loads_by_default(content)
        assert (table.faults == ()) == sound
        verdicts.add(sound)
    assert verdicts == {True, False}


def loads_by_default(content: bytes) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.load(io.BytesIO(content))
    except (pickle.UnpicklingError, AttributeError):
        return False
    return True


def test_no_plain_pickle_of_python_is_unsafe():
    plain = [value for value in programs.values() if type(value).__module__ == "builtins"]
    plain = [value for value in plain if not holds_itself(value)]
    written = [pickle.dumps(value, protocol) for value in plain for protocol in (2, 3, 4, 5)]
    assert len(written) > 80
    assert [data for data in written if judge_pickle(data) != (READ, None)] == []


def holds_itself(value: object) -> bool:
    return isinstance(value, list) and any(item is value for item in value)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_from_which_torch_runs_something_is_unsafe(name):
    """The first assertion is about the judge: torch imports `system` from each of these files."""
    assert ("posix", "system") in of_file(HOSTILE[name]).imports
    table = read(HOSTILE[name])
    assert isinstance(table, UnsafeFileError) or table.imports


def test_imports_before_a_fault_are_named():
    """A frame that opens within a frame is not followed; what is imported before it is named."""
    data = b"\x80\4\x95" + (40).to_bytes(8, "little") + programs.CALL + b"\x95"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a/data.pkl", data + bytes(40))
        archive.writestr("a/version", "3\n")
    error = read(content.getvalue())
    assert "opens a frame inside a frame" in str(error)
    assert error.imports == ("posix.system(':;') at byte 11",)


def repacked(content: bytes, *, pack=zipfile.ZIP_STORED, folders=False) -> bytes:
    """The same entries as zipfile writes them."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", pack) as new:
        if folders:
            new.mkdir("archive")
            new.mkdir("archive/data")
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return out.getvalue()


@pytest.mark.parametrize("pack", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("folders", [False, True])
def test_an_archive_that_was_packed_again_is_read_as_torch_reads_it(pack, folders):
    content = repacked(programs.files()[0], pack=pack, folders=folders)
    table = read(content)
    loaded = torch.load(io.BytesIO(content), weights_only=True)
    assert {one.name: one.shape for one in table.tensors} == {
        name: tuple(one.shape) for name, one in loaded.items()
    }
    assert (table.faults, table.imports) == ((), ())


@pytest.mark.parametrize("name", ["pytorch_model.bin", "Model.v2.ckpt", "poids.pt"])
def test_a_file_that_torch_wrote_by_its_name_is_read(name, tmp_path):
    """The archive's folder has the file's name, and not `archive`."""
    torch.save({"a": torch.ones(2, 3)}, tmp_path / name)
    [tensor] = read((tmp_path / name).read_bytes()).tensors
    assert (tensor.name, tensor.shape) == ("a", (2, 3))


def test_what_accelerate_saves_is_read(tmp_path):
    utils = pytest.importorskip("accelerate.utils", reason="a writer of the field")
    utils.save({"a": torch.ones(2, 3)}, tmp_path / "a.bin", safe_serialization=False)
    [tensor] = read((tmp_path / "a.bin").read_bytes()).tensors
    assert (tensor.name, tensor.shape) == ("a", (2, 3))

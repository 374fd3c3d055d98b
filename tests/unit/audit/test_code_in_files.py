"""Code in any file of a folder: looked at by content, whatever the name and whatever is audited.

Archives and compressed files are not looked into, and listed as not checked.
"""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import pickle
import tarfile
import tempfile
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.other_format_bytes import hdf5_bytes
from support.torch_files import torch_bytes

from auditor import audit
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.containers.code_in_files import parse
from auditor.containers.weight_formats import (
    FilePart,
    PartialFile,
    Table,
    UnfollowedError,
    UnsafeFileError,
)
from auditor.downloader import assemble
from auditor.downloader.fetching import fetch
from auditor.errors import CheckpointError

TENSORS = {one.name: (one.dtype, one.shape) for one in stored_by(expect("BertModel"))}
CONFIG = {"config.json": config_bytes(architectures=["BertModel"])}
SOUND = {**CONFIG, "model.safetensors": safetensors_bytes(TENSORS)}
FIXTURES = Path(__file__).parents[2] / "data" / "pickles"


class Called:
    def __reduce__(self):
        return os.system, ("id",)


def folder(path, files):
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return str(path)


def unsafe(outcome) -> list[str]:
    return sorted(one.file for one in outcome.findings if one.kind == "unsafe")


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def array_of(pickled: bytes) -> bytes:
    """An array of objects as numpy.save writes it: a header, and a pickle in place of numbers."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + pickled


BARE = bytes
WRAPPINGS = {
    "bare": BARE,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zlib": zlib.compress,
    "numpy": array_of,
    "two gzips": lambda content: gzip.compress(b"") + gzip.compress(content),
    "gzip and more": lambda content: gzip.compress(content) + b"rest",
    "npz": lambda content: zipped({"README.md": b"# it", "a.npy": array_of(content)}),
    "mar": lambda content: zipped({"MAR-INF/MANIFEST.json": b"{}", "any": content}),
    "tar": lambda content: tarred({"model_config.yaml": b"a: 1", "any": content}),
    "tar.gz": lambda content: gzip.compress(tarred({"a/b": content})),
    "self-extracting": lambda content: b"self-extracting" + zipped({"a": content}),
}
ENDINGS = (
    *("", ".bin", ".dill", ".sav", ".p", ".th", ".pk", ".pdparams", ".pt2", ".pkl.gz", ".model"),
    *(
        ".metadata",
        ".nemo",
        ".mar",
        ".npy",
        ".npz",
        ".keras",
        ".joblib",
        ".pkl",
        ".json",
        ".md",
        ".X",
    ),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=9) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.just(OrderedDict(a=1))
    ),
    max_leaves=8,
)


class Imports(pickle.Unpickler):
    """CPython's unpickler, which refuses every import and records it."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self.names: list[str] = []

    def find_class(self, module: str, name: str):
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        self.names.append(f"{module}.{name}")
        raise pickle.UnpicklingError(name)


def imports(content: bytes) -> list[str]:
    unpickler = Imports(content)
    with contextlib.suppress(Exception):  # whatever these bytes are
        unpickler.load()
    return unpickler.names


def looked_at(name: str, content: bytes) -> Table | CheckpointError:
    try:
        return parse(name, PartialFile(len(content), (FilePart(0, content),) if content else ()))
    except CheckpointError as error:
        return error


def is_unsafe(found) -> bool:
    return isinstance(found, UnsafeFileError) or (isinstance(found, Table) and bool(found.imports))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    VALUES,
    st.sampled_from(range(6)),
    st.sampled_from(list(WRAPPINGS.values())),
    st.sampled_from(ENDINGS),
    st.none() | st.binary(max_size=4),
)
@example([], 0, WRAPPINGS["self-extracting"], ".bin", b"")
def test_a_pickle_that_imports_is_unsafe_whatever_is_around_it(value, protocol, wrap, ending, rest):
    """Bytes behind the pickle are drawn for one that calls; without them there is no call."""
    has_call = rest is not None
    pickled = pickle.dumps([value, Called()] if has_call else value, protocol=protocol)
    content = wrap(pickled + (rest or b""))
    found = looked_at(f"a/file{ending}", content)
    assert bool(imports(pickled)) == has_call
    if has_call:
        assert is_unsafe(found) or isinstance(found, UnfollowedError), found
    elif wrap is BARE and ending in {"", ".dill", ".npy", ".md", ".X"}:
        # Of an OrderedDict in protocols 0 and 1 the opcodes are not followed: that is unsafe, too.
        assert not is_unsafe(found) or (protocol < 2 and b"OrderedDict" in pickled), found
        assert not isinstance(found, UnfollowedError)


def test_a_call_in_a_file_of_a_folder_is_found_or_the_file_is_listed(subtests, tmp_path):
    for name, wrap in WRAPPINGS.items():
        with subtests.test(wrap=name):
            content = wrap(pickle.dumps(Called(), protocol=2))
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            outcome = audit(folder(place, {**SOUND, "a/file": content}))
            listed = any("'a/file': may contain code" in line for line in outcome.unchecked)
            found = (unsafe(outcome), listed, outcome.residual)
            is_followed = wrap in {BARE, array_of}
            assert found == ((["a/file"], False, 0) if is_followed else ([], True, 0))


WITHOUT_WEIGHTS = {
    "a config alone": CONFIG,
    "nothing else": {},
    "weights of another format": {**CONFIG, "onnx/model.onnx": b"\x08\x07"},
    "weights of another name": {**CONFIG, "other.bin": torch_bytes(TENSORS), "more.pt": b"x"},
    "a class that nobody knows": {**SOUND, "config.json": b'{"model_type": "no"}'},
    "a broken config": {**SOUND, "config.json": b"Not Found"},
    "a file that is too large": {**CONFIG, "model.safetensors.index.json": bytes(40)},
    "several variants": {**CONFIG, "model.a.safetensors": b"", "model.b.safetensors": b""},
}


def test_code_is_found_whatever_is_audited(subtests, tmp_path):
    for name in ["model_head.pkl", "deep/er/no_ending", "weights.dill"]:
        for files in WITHOUT_WEIGHTS.values():
            with subtests.test(files=files, name=name):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                outcome = audit(folder(place, {**files, name: pickle.dumps(Called())}))
                assert unsafe(outcome) == [name]


def test_code_in_the_folder_of_a_component_without_weights_is_found(tmp_path):
    index = {"_class_name": "P", "text_encoder": ["transformers", "BertModel"]}
    files = {f"text_encoder/{name}": content for name, content in CONFIG.items()}
    files |= {"text_encoder/a.onnx": b"x", "text_encoder/b": pickle.dumps(Called())}
    files |= {"model_index.json": json.dumps(index).encode(), "c": pickle.dumps(Called())}
    outcome = audit(folder(tmp_path, files))
    found = [name for part in outcome.every for name in unsafe(part)]
    assert sorted(found) == ["c", "text_encoder/b"]


UNFOLLOWED = {
    "model.h5": hdf5_bytes(),
    "a.zst": b"\x28\xb5\x2f\xfd" + bytes(40),
    "a.lz4": b"\x04\x22M\x18" + bytes(40),
    "a.mar": zipped({"handler.py": b"print(1)"}),
    "a.distcp": b"PK\x03\x04" + bytes(40),
    "a.zip": b"PK\x03\x04" + bytes(40),
    "model.keras": zipped({"config.json": b"{}"}),
    "a.joblib": zlib.compress(b"\x80\x02}."),
}


def test_what_may_have_code_and_is_not_followed_is_listed(subtests, tmp_path):
    for name, content in UNFOLLOWED.items():
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            outcome = audit(folder(place, {**SOUND, name: content}))
            is_listed = any(f"'{name}'" in line for line in outcome.unchecked)
            assert is_listed or unsafe(outcome) == [name]
            assert (outcome.verdict == "clean") == (unsafe(outcome) == [])


HARMLESS = {
    "README.md": b"# It\nI love this.\n",
    "labels.txt": b"cat\ndog\nbird\n",
    "names.txt": b"checkout\nmain\nok\n",
    "main.py": b"import os\nimport sys\n\nprint(os)\n",
    "tokenizer.model": b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02",
    "flax_model.msgpack": b"\x82\xa1a\x01\xa1b\x02",
    "image.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "image.bmp": b"BM\x36\x00\x00\x00" + bytes(48),
    "image.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "data.arrow": b"ARROW1\0\0" + bytes(40),
    "data.parquet": b"PAR1\x15\x04" + bytes(40),
    "model.onnx": b"\x08\x07\x12\x07pytorch",
    "other.safetensors": safetensors_bytes({"a": ("F32", (2,))}),
    "model.gguf": b"GGUF\x03\0\0\0" + bytes(16),
    "x.npy": array_of(b"O" * 400).replace(b"|O", b"<f"),
    "power.txt": b"x^2 + y^2\n",
    "tf_model.h5": hdf5_bytes(),
    "state.th": torch_bytes({"a": ("F32", (2,))}),
    "numbers.dill": pickle.dumps({"a": [1, 2.5, "x"]}),
    "old.sav": pickle.dumps({"a": [1, 2.5, "x"]}, protocol=0),
    "empty": b"",
}


def test_sound_files_of_any_format_raise_no_alarm(tmp_path):
    outcome = audit(folder(tmp_path, {**SOUND, **HARMLESS}))
    assert (outcome.verdict, unsafe(outcome)) == ("clean", [])
    plain = audit(folder(tmp_path / "plain", SOUND))
    assert outcome.unchecked == plain.unchecked


@given(st.text(max_size=200).map(str.encode) | st.binary(max_size=200))
def test_texts_and_arbitrary_bytes_raise_no_alarm_unless_cpython_imports_something(content):
    found = looked_at("any", content)
    assert isinstance(found, CheckpointError)
    if isinstance(found, UnsafeFileError):
        assert imports(content)


def test_a_snapshot_says_what_its_folder_says(tmp_path):
    files = dict.fromkeys(("a", "d.pkl"), pickle.dumps(Called()))
    files |= {"b.h5": UNFOLLOWED["model.h5"], "c.npy": array_of(b"N.")}
    snapshot = fetch(folder(tmp_path, {**SOUND, **files}))
    again = load(dump(snapshot), "x")
    outcomes = [examine(one, Options(requested="x")) for one in (snapshot, again)]
    assert outcomes[0].findings == outcomes[1].findings
    assert outcomes[0].unchecked == outcomes[1].unchecked
    assert unsafe(outcomes[0]) == ["a", "d.pkl"]


def test_files_beyond_the_bound_are_named_as_not_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(assemble, "_MOST_OTHERS", 2)
    outcome = audit(folder(tmp_path, {**SOUND, "y": b"", "z": pickle.dumps(Called())}))
    assert unsafe(outcome) == []
    assert [line for line in outcome.unchecked if "'z'" in line]


def test_files_that_may_have_code_on_the_hub_are_named_as_not_checked(at_hub):
    named = [f"a{ending}" for ending in (".dill", ".npy", ".keras", ".nemo", ".pkl.gz", ".mar")]
    quiet = ["tokenizer.model", "tf_model.h5", "a.json", "b.md", "c.onnx"]
    for number, name in enumerate((*named, *quiet)):
        at_hub.add(f"org/a{number}", {**SOUND, name: b"x"})
        lines = [line for line in audit(f"org/a{number}").unchecked if "may run code" in line]
        assert bool(lines) == (name in named), name


def test_a_repository_without_weights_on_the_hub_names_what_was_not_looked_at(at_hub):
    at_hub.add("org/head", {"model_head.pkl": pickle.dumps(Called())})
    outcome = audit("org/head")
    assert (outcome.verdict, outcome.reason) == ("unaudited", "no-weights")
    assert [line for line in outcome.unchecked if "'model_head.pkl'" in line]


def test_the_class_in_a_joblib_file_is_named():
    found = looked_at("model_head.pkl", (FIXTURES / "lr.joblib").read_bytes())
    assert found.imports[0].startswith("sklearn.linear_model._logistic.LogisticRegression")

"""Small sound files of the formats that are recognised, by their documented structure."""

import io
import json
import pickle
import struct
import tarfile
from collections.abc import Mapping
from typing import Any

from msgspec import msgpack


def flax_bytes(tree: Mapping[str, Any]) -> bytes:
    """Write a tree whose leaves are shapes as flax.serialization does: F32, filled with zeros."""

    def encoded(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: encoded(item) for key, item in value.items()}
        content = bytes(4 * _product(value))
        return msgpack.Ext(1, msgpack.encode((value, "float32", content)))

    return msgpack.encode(encoded(tree))


def _product(shape: list[int]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product


def onnx_bytes(location: bytes = b"m.data") -> bytes:
    """Write a graph with one initializer of four F32 numbers in a file beside it."""
    entry = _field(1, b"location") + _field(2, location)
    tensor = b"\x08\x04\x10\x01" + _field(8, b"w") + _field(13, entry) + b"\x70\x01"
    return b"\x08\x08" + _field(7, _field(1, _field(4, b"Add")) + _field(5, tensor))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def ctranslate2_bytes() -> bytes:
    variable = b"\x02\0w\0\x01" + struct.pack("<IBI", 2, 0, 8) + bytes(8)
    return struct.pack("<IH", 6, 8) + b"AbcSpec\0" + struct.pack("<II", 1, 1) + variable + bytes(4)


def coreml_bytes() -> bytes:
    entry = struct.pack("<IIQQ", 0xDEADBEEF, 2, 4, 128).ljust(64, b"\0")
    return struct.pack("<II", 1, 2).ljust(64, b"\0") + entry + b"1234"


def nemo_bytes(weights: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in (("./model_config.yaml", b"a: 1"), ("./model_weights.ckpt", weights)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def hdf5_bytes(size: int = 96) -> bytes:
    superblock = b"\x89HDF\r\n\x1a\n" + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + bytes(8)
    return (superblock + struct.pack("<QQQ", 0, 0, size)).ljust(96, b"\0")


def executorch_bytes() -> bytes:
    return struct.pack("<I4s4sIQQQ", 48, b"ET12", b"eh00", 32, 40, 48, 8).ljust(56, b"\1")


def tflite_bytes() -> bytes:
    """Write a model with one buffer of four bytes: root, vtable, table, vector, buffer."""
    vtable = struct.pack("<7H", 14, 8, 0, 0, 0, 0, 4)  # at 8: field 4 is at the table's byte 4
    table = struct.pack("<iI", 24 - 8, 4)  # at 24: the vector begins 4 bytes behind the field
    vector = struct.pack("<II", 1, 4 + 8)  # at 32: one buffer, whose table is at 48
    buffer = struct.pack("<HHHH", 6, 8, 4, 0) + struct.pack("<iI", 8, 4)  # at 40, and at 48
    return (
        struct.pack("<I4s", 24, b"TFL3")
        + vtable.ljust(16, b"\0")
        + table
        + vector
        + buffer
        + struct.pack("<I4s", 4, b"data")
    )


_ORBAX = {
    "tree_metadata": {
        "('a',)": {
            "key_metadata": [{"key": "a", "key_type": 2}],
            "value_metadata": {"value_type": "jax.Array", "write_shape": [2, 3]},
        }
    },
    "use_ocdbt": True,
}

# A file's name -> the bytes of a sound file, one at least for each reader of the table.
SOUND: Mapping[str, bytes] = {
    "model.onnx": onnx_bytes(),
    "model.xml": b'<?xml version="1.0"?>\n<net name="a"><data offset="0" size="8"/></net>',
    "model.bin": ctranslate2_bytes(),
    "weights/weight.bin": coreml_bytes(),
    "a.mlpackage/Manifest.json": json.dumps(
        {"fileFormatVersion": "1.0.0", "itemInfoEntries": {"x": {"path": "a/model.mlmodel"}}}
    ).encode(),
    "ndarray-cache.json": json.dumps(
        {
            "records": [
                {
                    "dataPath": "s.bin",
                    "nbytes": 8,
                    "records": [{"name": "w", "shape": [2], "dtype": "float16"}],
                }
            ]
        }
    ).encode(),
    "config.json": b'{"architecture": "A", "mapping": {"world_size": 2}}',
    "mnn/config.json": b'{"llm_model": "llm.mnn"}',
    "model.pte": executorch_bytes(),
    "model.tflite": tflite_bytes(),
    "tf_model.h5": hdf5_bytes(),
    "flax_model.msgpack": flax_bytes({"a": {"kernel": [2, 3]}, "b": {"scale": [3]}}),
    "_METADATA": json.dumps(_ORBAX).encode(),
    "manifest.ocdbt": b"\x0c\xdb\x3a\x2a" + struct.pack("<Q", 46) + b"d/" + b"0" * 32,
    "latest_checkpointed_iteration.txt": b"1000",
    "metadata.json": b'{"sharded_backend": "torch_dist"}',
    "model.nemo": nemo_bytes(pickle.dumps({"a": 1}, 2)),
}

"""The table of formats that are recognised, and reconciled at most in part.

A format is recognised by the first bytes of its main file, or by the name of that file and its
first bytes. A file that was not opened (on the Hub) is recognised by its name.
"""

import re
from collections.abc import Iterable, Iterator
from importlib import import_module

from msgspec import Struct

from auditor.containers.weight_formats import (
    PartialFile,
    Table,
    TensorFault,
    UnfollowedError,
    UnsafeFileError,
)
from auditor.errors import CheckpointError
from auditor.messages import named


class OtherFormat(Struct, frozen=True, kw_only=True):
    """A format: how its main file is recognised, what is read of it, and what a user can do."""

    name: str
    known_by: str  # how a person recognises it, in Markdown
    files: str  # a pattern of the main file's path, in lower case; "": only its bytes show it
    start: bytes = b""  # a pattern of its first 512 bytes; b"": its name suffices
    by_start: bool = False  # whether those bytes suffice, whatever the name
    by_name: bool = True  # whether the name suffices for a file that was not opened
    module: str = ""  # whose parse(file, sparse) reads it, and returns None for another format
    is_followed: bool = False  # whether that module follows each pickle in it
    in_parts: bool = False  # whether a weight file of it alone is no model
    read: str = "the first bytes"
    to_do: str


_EXPORTED = "audit the checkpoint that it was exported from"
_CONVERTED = "audit the checkpoint that it was converted from"
_IN_TF = "load it with from_tf=True in transformers 4, and save it again as safetensors"
_BRIDGE = "convert it with Megatron-Bridge (AutoBridge, export_ckpt), and audit what that writes"

# The first row that fits is a file's format. `docs/checkpoints.md` is written from this table.
OTHER_FORMATS = (
    OtherFormat(
        name="Megatron-LM",
        known_by="`latest_checkpointed_iteration.txt`, `mp_rank_00/model_optim_rng.pt`",
        files=r"latest_checkpointed_iteration\.txt|mp_rank_\d\d(_\d{3}){0,2}/model(_optim)?_rng\.pt",
        module="megatron",
        is_followed=True,
        in_parts=True,
        read="the iteration that the tracker names; tensor and pipeline ranks that args declares; "
        "each rank's pickle",
        to_do=_BRIDGE,
    ),
    OtherFormat(
        name="Megatron-LM",
        known_by="`metadata.json` with `sharded_backend`",
        files=r"metadata\.json",
        start=rb'\s*\{\s*"sharded_backend"',
        by_name=False,
        module="megatron",
        in_parts=True,
        read="common.pt, .metadata, and the .distcp files that it names, with their sizes",
        to_do=_BRIDGE,
    ),
    OtherFormat(
        name="torch.distributed.checkpoint",
        known_by="`.metadata`, `*.distcp`",
        files=r"\.metadata|[^/]+\.distcp",
        start=rb"\x80[\x02-\x05]|PK\x03\x04",
        module="dcp_files",
        is_followed=True,
        in_parts=True,
        read="the .distcp files that .metadata names, and their sizes",
        to_do="ask whoever saved them for safetensors: dcp_to_torch_save, which joins them, "
        "unpickles .metadata and parts of them, which may run code",
    ),
    OtherFormat(
        name="NeMo",
        known_by="`*.nemo`; `context/model.yaml` of NeMo 2",
        files=r"[^/]+\.nemo|context/(io\.json|model\.yaml)",
        module="nemo",
        is_followed=True,
        read="the members of the tar archive, and each pickle in it",
        to_do="export it to Hugging Face's format with NeMo (llm.export_ckpt), and audit that",
    ),
    OtherFormat(
        name="ONNX",
        known_by="`*.onnx` with a graph",
        files=r"[^/]+\.onnx",
        start=rb"\x08[\x01-\x20]|version https://git-lfs",
        module="onnx",
        read="names, types and shapes of the initializers; the files of external data and their "
        "sizes",
        to_do=_EXPORTED,
    ),
    OtherFormat(
        name="OpenVINO",
        known_by="an `.xml` whose root is `net`",
        files=r"[^/]+\.xml",
        start=rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?<net ",
        by_name=False,
        module="openvino",
        read="the constants in the .xml, and the size of the .bin",
        to_do=_EXPORTED,
    ),
    OtherFormat(
        name="CTranslate2",
        known_by="a version and a name that ends in `Spec`, such as `TransformerDecoderSpec`",
        files=r"model\.bin",
        start=rb"[\x01-\x20]\0\0\0.\0[A-Za-z0-9]{3,63}Spec\0",
        by_start=True,
        by_name=False,
        module="ctranslate2",
        read="names, types and shapes of the variables, up to the end of the file",
        to_do=f"{_CONVERTED} (ct2-transformers-converter reads it)",
    ),
    OtherFormat(
        name="MLC-LLM",
        known_by="`mlc-chat-config.json`, `ndarray-cache.json`, `tensor-cache.json`",
        files=r"(ndarray|tensor)-cache\.json|mlc-chat-config\.json",
        module="mlc",
        read="names, types and shapes in ndarray-cache.json; the shards and their sizes",
        to_do=f"{_CONVERTED} by mlc_llm convert_weight",
    ),
    OtherFormat(
        name="Core ML",
        known_by="`Manifest.json` of an `.mlpackage`",
        files=r"([^/]+\.mlpackage/)?manifest\.json",
        start=rb'\s*\{\s*"(fileFormatVersion|itemInfoEntries|rootModelIdentifier)"',
        by_name=False,
        module="coreml",
        read="the files that Manifest.json names",
        to_do=_CONVERTED,
    ),
    OtherFormat(
        name="Core ML",
        known_by="`weights/weight.bin` with 0xDEADBEEF at byte 64",
        files=r"[^/]+/weights/weight\.bin",
        start=rb"....\x02\0\0\0\0{56}\xef\xbe\xad\xde",
        by_start=True,
        module="coreml",
        read="the directory of its numbers, up to the end of the file",
        to_do=_CONVERTED,
    ),
    OtherFormat(
        name="Core ML",
        known_by="`*.mlmodel`, `*.mlmodelc/`",
        files=r"[^/]+\.(mlmodel|mlmodelc/metadata\.json)",
        to_do=_CONVERTED,
    ),
    OtherFormat(
        name="TensorRT-LLM",
        known_by="`config.json` with `architecture` and `mapping.world_size`",
        files=r"config\.json",
        by_name=False,
        module="tensorrt_llm",
        read="mapping.world_size in config.json, and the files of all ranks",
        to_do="audit the original checkpoint, which convert_checkpoint.py converted",
    ),
    OtherFormat(
        name="TensorRT",
        known_by="`ftrt` or `ptrt` at its start; `*.engine`, `*.plan`",
        files=r"[^/]+\.(engine|plan|trt)",
        start=rb"(ftrt|ptrt)",
        by_start=True,
        to_do="it was built for one GPU: audit the original checkpoint that was converted",
    ),
    OtherFormat(
        name="ExecuTorch",
        known_by="`ET12` at byte 4",
        files=r"[^/]+\.(pte|ptd)",
        start=rb".{4}(ET1[0-9]|FT01)",
        by_start=True,
        module="flatbuffers",
        read="the sizes in its header",
        to_do=_EXPORTED,
    ),
    OtherFormat(
        name="TFLite",
        known_by="`TFL3` at byte 4",
        files=r"[^/]+\.(tflite|lite)",
        start=rb".{4}TFL3",
        by_start=True,
        module="flatbuffers",
        read="the places of its constants in the file",
        to_do=_CONVERTED,
    ),
    OtherFormat(
        name="LiteRT-LM",
        known_by="`*.litertlm`, `*.task`",
        files=r"[^/]+\.(litertlm|task)",
        start=rb"LITERTLM|PK\x03\x04",
        to_do=_CONVERTED,
    ),
    OtherFormat(
        name="TensorFlow (transformers' weights)",
        known_by="`tf_model.h5` and its shards",
        files=r"tf_model(-\d{5}-of-\d{5})?\.h5",
        module="tensorflow",
        read="the size that the file declares",
        to_do=_IN_TF,
    ),
    OtherFormat(
        name="Keras",
        known_by="`*.keras`, `*.h5` that are a zip archive or HDF5",
        files=r"[^/]+\.(keras|h5|hdf5)",
        start=rb"PK\x03\x04|\x89HDF\r\n\x1a\n",
        module="tensorflow",
        read="the size that the file declares, or the end of the archive",
        to_do="audit the original weights: load it with Keras only if you trust it, because it may "
        "contain code",
    ),
    OtherFormat(
        name="TensorFlow (SavedModel)",
        known_by="`saved_model.pb`, `variables/`",
        files=r"(saved_model\.pb|variables/variables\.(index|data-\d{5}-of-\d{5}))",
        module="tensorflow",
        read="the numbered files of its variables",
        to_do=_EXPORTED,
    ),
    OtherFormat(
        name="TensorFlow 1",
        known_by="`*.data-00000-of-00001`, and an index of LevelDB",
        files=r"[^/]+\.(index|data-\d{5}-of-\d{5})",
        by_name=False,
        module="tensorflow",
        read="the numbered files of its variables",
        to_do="convert it with the script of its model type (convert_bert_original_tf_checkpoint_"
        "to_pytorch.py and others of transformers 4)",
    ),
    OtherFormat(
        name="Flax (msgpack)",
        known_by="`*.msgpack` that begins with a map",
        files=r"[^/]+\.msgpack",
        start=rb"[\x81-\x8f\xde\xdf]",
        module="flax",
        read="names, types and shapes of all arrays; flax_model.msgpack beside a config is "
        "reconciled under the names that transformers 4 gives them",
        to_do="load it with from_flax=True in transformers 4, and save it again as safetensors",
    ),
    OtherFormat(
        name="Orbax",
        known_by="`_METADATA`, `_CHECKPOINT_METADATA`",
        files=r"_metadata|_checkpoint_metadata",
        start=rb'\s*\{\s*"(tree_metadata|key_metadata|item_handlers|metrics|init_timestamp)',
        by_name=False,
        module="orbax",
        read="names and shapes in _METADATA, and whether the save was finished",
        to_do="restore it with Orbax, or convert it with the project that trained it (MaxText, "
        "EasyLM, Gemma), and audit what that writes",
    ),
    OtherFormat(
        name="Orbax",
        known_by="`manifest.ocdbt`",
        files=r"manifest\.ocdbt",
        start=rb"\x0c\xdb\x3a\x2a",
        module="orbax",
        read="its size, and the files that it names",
        to_do="restore it with Orbax, and audit what that writes",
    ),
    OtherFormat(
        name="MNN",
        known_by="`*.mnn`, `llm_config.json`",
        files=r"[^/]+\.mnn(\.weight)?|llm_config\.json",
        by_name=False,
        module="mnn",
        read="the files that config.json of MNN-LLM names",
        to_do=f"{_CONVERTED} (llmexport, MNNConvert)",
    ),
    OtherFormat(
        name="RKLLM or RKNN",
        known_by="`*.rkllm`, `*.rknn`",
        files=r"[^/]+\.(rkllm|rknn)",
        to_do=_CONVERTED,
    ),
    OtherFormat(
        name="ncnn",
        known_by="`*.ncnn.param`, `*.ncnn.bin`",
        files=r"[^/]+\.ncnn\.(param|bin)",
        to_do=_CONVERTED,
    ),
    OtherFormat(
        name="GGML, before GGUF",
        known_by="`lmgg`, `tjgg`, `fmgg` or `ggml` at its start",
        files=r"ggml-[^/]+\.bin",
        start=rb"(lmgg|ggml|tjgg|fmgg|algg)",
        by_start=True,
        to_do="convert the original model to GGUF, or audit that model",
    ),
    OtherFormat(
        name="fastText",
        known_by="its magic number, 0x2F4F16BA",
        files=r"[^/]+\.(ftz|bin)",
        start=rb"\xba\x16\x4f\x2f",
        by_start=True,
        by_name=False,
        to_do="load it with fastText: its vectors and matrices are no state dict",
    ),
    OtherFormat(
        name="PaddlePaddle",
        known_by="`*.pdparams`, `*.pdiparams`, `*.pdmodel`",
        files=r"[^/]+\.(pdparams|pdiparams|pdmodel)",
        to_do="convert it with PaddleNLP (save_pretrained with safe_serialization=True)",
    ),
    OtherFormat(
        name="MindSpore",
        known_by="`*.mindir`",
        files=r"[^/]+\.(mindir|ckpt\.ms)",
        to_do=_CONVERTED,
    ),
    OtherFormat(
        name="rust-bert (a zip archive of NumPy arrays)",
        known_by="`*.ot`",
        files=r"[^/]+\.ot",
        to_do="audit the original model, which rust-bert's convert_model.py converted",
    ),
    OtherFormat(
        name="NumPy (.npz, as older MLX writes)",
        known_by="`*.npz`",
        files=r"[^/]+\.npz",
        start=rb"PK\x03\x04",
        to_do="convert it with the program that wrote it (mlx.core.save_safetensors), and audit "
        "that",
    ),
    OtherFormat(
        name="torch.export",
        known_by="`*.pt2`",
        files=r"[^/]+\.pt2",
        to_do=_EXPORTED,
    ),
    OtherFormat(
        name="joblib or skops",
        known_by="`*.joblib`, `*.skops`",
        files=r"[^/]+\.(joblib|skops)",
        to_do="no tensors are read of it: audit the original model, and export it as skops or ONNX "
        "to share it",
    ),
)


def format_of(file: str, start: bytes) -> OtherFormat | None:
    """Return the format of a file with these first bytes; None if it is not in the table."""
    for row in OTHER_FORMATS:
        is_named = _has_name(row, file)
        if (is_named or row.by_start) and _starts_with(row, start):
            return row
    return None


def formats_by_name(files: Iterable[str]) -> Iterator[tuple[OtherFormat, str]]:
    """Yield the format of each file that was not opened and whose name shows it."""
    rows = [row for row in OTHER_FORMATS if row.by_name]
    for file in files:
        if row := next((row for row in rows if _has_name(row, file)), None):
            yield row, file


def read_format(file: str, sparse: PartialFile, row: OtherFormat) -> Table | None:
    """Return what a file of the format declares; None if it is of another format after all.

    Raise UnsafeFileError if loading it may run code.
    """
    if not row.module:
        return Table(file=file, tensors=())
    try:
        table: Table | None = import_module(f"auditor.containers.{row.module}").parse(file, sparse)
    except (UnsafeFileError, UnfollowedError):
        raise
    except CheckpointError as error:
        fault = f"{named(file)} cannot be read as {row.name}: {error}"
        return Table(file=file, tensors=(), faults=(TensorFault((), fault),))
    return table


def _has_name(row: OtherFormat, file: str) -> bool:
    return re.fullmatch(rf"(?:.*/)?(?:{row.files})", file.lower(), re.DOTALL) is not None


def _starts_with(row: OtherFormat, start: bytes) -> bool:
    return not row.start or re.match(row.start, start, re.DOTALL) is not None

"""The schemes that an engine picks for declared quantizations, folded into rows of a data file."""

import itertools
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engines import packings, probes, saves
from engines.judging import Judge

Row = dict[str, Any]
_ABSENT = None  # stands for a key that is absent
_SIZES = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}  # divided by groups of 128
# Keys that name the packed modules, or that tell how they were found.
_NOT_DECIDING = {
    *("ignore", "ignored_layers", "modules_to_not_convert", "modules_in_block_to_quantize"),
    *("quant_method", "kv_cache_scheme"),
}


class Table(NamedTuple):
    """Declarations of one method: every combination of the values of the keys."""

    method: str
    values: Mapping[str, Sequence[Any]]
    model_types: tuple[str, ...] = ()

    def combinations(self) -> Iterator[dict[str, Any]]:
        for values in itertools.product(*self.values.values()):
            yield dict(zip(self.values, values, strict=True))


def _arguments(part: str, **values: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Return the values of one part of compressed-tensors' groups."""
    return {part: (True,), **{f"{part}.{key}": listed for key, listed in values.items()}}


_INT4 = _arguments("weights", num_bits=(4, 8), type=("int",), dynamic=(False,))
_INT8 = _arguments("weights", num_bits=(8,), type=("int",), symmetric=(True,), dynamic=(False,))
_FLOAT8 = _arguments("weights", num_bits=(8,), type=("float",), symmetric=(True,), dynamic=(False,))
_TOKENS = {"strategy": ("token",), "symmetric": (True,), "dynamic": (True,)}
_TENSORS = {"strategy": ("tensor",), "symmetric": (True,), "dynamic": (False,)}
_BLOCKS = _arguments(
    "input_activations",
    **{**_TOKENS, "strategy": ("group",), "group_size": (128,), "num_bits": (8,)},
    type=("float",),
)
_INTS = {"num_bits": (8,), "type": ("int",)}
_FLOATS = {"num_bits": (8,), "type": ("float",)}
_COMPRESSED = (
    {
        "format": ("pack-quantized",),
        **_INT4,
        "weights.strategy": ("group",),
        "weights.group_size": (32, 64, 128),
        "weights.symmetric": (True, False),
        "weights.actorder": (_ABSENT, "weight", "group", "static"),
    },
    {
        "format": ("pack-quantized",),
        **_INT4,
        "weights.strategy": ("channel",),
        "weights.group_size": (_ABSENT, -1),
        "weights.symmetric": (True, False),
    },
    *(
        {"format": ("int-quantized",), **_INT8, "weights.strategy": ("channel", "tensor"), **inputs}
        for inputs in (
            _arguments("input_activations", **_INTS, **_TOKENS),
            _arguments("input_activations", **_INTS, **_TENSORS),
        )
    ),
    *(
        {
            "format": ("float-quantized",),
            **_FLOAT8,
            "weights.strategy": ("channel", "tensor"),
            **inputs,
        }
        for inputs in (
            {},
            _arguments("input_activations", **_FLOATS, **_TOKENS),
            _arguments("input_activations", **_FLOATS, **_TENSORS),
        )
    ),
    {
        "format": ("float-quantized",),
        **_FLOAT8,
        "weights.strategy": ("block",),
        "weights.block_structure": ([128, 128],),
        **_BLOCKS,
    },
    {
        "format": ("nvfp4-pack-quantized",),
        **_arguments("weights", num_bits=(4,), type=("float",), symmetric=(True,)),
        "weights.dynamic": (False,),
        "weights.strategy": ("tensor_group",),
        "weights.group_size": (16,),
    },
)
_GROUPS = (-1, 32, 64, 128)
_VLLM = (
    Table(
        "gptq",
        {
            "bits": (2, 3, 4, 8),
            "group_size": _GROUPS,
            "desc_act": (False, True),
            "sym": (True, False),
            "lm_head": (_ABSENT, False),
        },
    ),
    Table("awq", {"bits": (4, 8), "group_size": _GROUPS, "zero_point": (True, False)}),
    Table("fp8", {"activation_scheme": ("dynamic",), "weight_block_size": (_ABSENT, [128, 128])}),
    Table("fp8", {"activation_scheme": ("static",), "weight_block_size": (_ABSENT,)}),
    Table(
        "fp8",
        {"activation_scheme": ("dynamic",), "weight_block_size": ([128, 128],)},
        ("deepseek_v4",),
    ),
    *(Table("compressed-tensors", values) for values in _COMPRESSED),
    Table(
        "bitsandbytes",
        {
            "load_in_4bit": (_ABSENT, False, True),
            "load_in_8bit": (_ABSENT, False, True),
            "bnb_4bit_quant_type": (_ABSENT, "nf4", "fp4"),
        },
    ),
    Table("mxfp4", {}),
    Table("mxfp4", {}, ("gpt_oss",)),
    Table("mxfp8", {"weight_block_size": (_ABSENT, [1, 32])}),
    Table("modelopt", {"quant_algo": ("FP8", "NVFP4"), "group_size": (_ABSENT, 16)}),
)
_MLX = (
    Table(
        "mlx",
        {"bits": (2, 3, 4, 5, 6, 8), "group_size": (32, 64, 128), "mode": (_ABSENT, "affine")},
    ),
    Table("mlx", {"bits": (4,), "group_size": (32,), "mode": ("mxfp4",)}),
    Table("mlx", {"bits": (8,), "group_size": (32,), "mode": ("mxfp8",)}),
)


def recorded(engine: str, python: str, judge: Judge, folder: Path) -> dict[str, Any]:
    """Return the rows of an engine, with the keys that decide, by method."""
    if engine == "vllm":
        return _of_vllm(python)
    if engine == "mlx":
        return _folded(_of_mlx(judge, folder))
    return {}


class Answer(NamedTuple):
    """The schemes of one declaration, by compute capability."""

    table: Table
    values: dict[str, Any]
    keys: tuple[str, ...]  # those that the engine read
    by: tuple[tuple[int, Any], ...]
    raises: str = ""


def _of_vllm(python: str) -> dict[str, Any]:
    judge = Path(__file__).parent / "judges" / "vllm_schemes.py"
    asked = [(table, values) for table in _VLLM for values in table.combinations()]
    questions = [
        {"model_type": next(iter(table.model_types), "llama"), "declared": declared(table, values)}
        for table, values in asked
    ]
    done = subprocess.run(  # noqa: S603 - our own program
        [python, "-P", str(judge)],
        input=json.dumps(questions),
        check=True,
        capture_output=True,
        text=True,
    )
    return _folded(
        Answer(table, values, tuple(answer["keys"]), *_steps(answer["by"]))
        for (table, values), answer in zip(asked, json.loads(done.stdout), strict=True)
    )


def declared(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what config.json declares; values are those of one combination."""
    plain = {key: value for key, value in values.items() if value is not _ABSENT}
    method = {"quant_method": table.method} if table.method != "mlx" else {}
    if table.method != "compressed-tensors":
        return {**method, **plain}
    group: dict[str, Any] = {"targets": ["Linear"], "input_activations": None}
    for key, value in plain.items():
        part, _, field = key.partition(".")
        if field:
            group.setdefault(part, {})[field] = value
            continue
        if key != "format":
            group[key] = {}
    return {
        **method,
        "format": plain["format"],
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "quantization_status": "compressed",
    }


def _steps(by: Mapping[str, Mapping[str, str]]) -> tuple[tuple[tuple[int, Any], ...], str]:
    """Return the capabilities from which the outcome differs, and the error if all raise it."""
    steps: list[tuple[int, Any]] = []
    for capability, outcome in by.items():
        found = outcome.get("scheme", False if "raises" in outcome else None)
        if len(steps) < 2 or steps[-1][1] != found:  # the CPU, and the first GPU, always
            steps.append((int(capability), found))
    errors = [outcome.get("raises", "") for outcome in by.values()]
    return tuple(steps), errors[0] if all(errors) else ""


def _of_mlx(judge: Judge, folder: Path) -> Iterator[Answer]:
    save = saves.build("LlamaForCausalLM", {}, _SIZES)
    config = {**save.config, **save.config["rope_parameters"]}
    for table in _MLX:
        for values in table.combinations():
            settings = declared(table, values)
            packing = packings.Packing(settings, packings.mlx(**settings))
            tensors = packing.packed(save.tensors)
            where = folder / "scheme"
            probes.write(where, probes.Written({**config, "quantization": settings}, tensors))
            answer = judge.outcomes([where])[0]
            schemes = answer.get("reads", {}).get("schemes", [])
            if len(schemes) == 1:
                yield Answer(table, values, ("bits", "group_size", "mode"), ((0, schemes[0]),))


def _folded(answers: Iterable[Answer]) -> dict[str, Any]:
    """Return the answers as rows, each with all values that have the same outcome."""
    answers = list(answers)
    read: dict[str, set[str]] = {}
    for one in answers:
        read.setdefault(one.table.method, set()).update(one.keys, one.values)
    keys = {method: sorted(names - _NOT_DECIDING) for method, names in read.items()}
    if compressed := keys.get("compressed-tensors"):
        fields = {key.partition(".")[2] for key in compressed} - {""}
        parts = ("weights", "input_activations", "output_activations")
        nested = {f"{part}.{field}" for part in parts for field in fields}
        own = {"format", "sparsity_config", "transform_config", *parts}
        keys["compressed-tensors"] = sorted(own | nested | _TYPES_OF_SCALES)
    rows: list[Row] = []
    for table in dict.fromkeys(id(one.table) for one in answers):
        of_table = [one for one in answers if id(one.table) == table]
        rows += _merged(of_table)
    return {"schemes": rows, "scheme_keys": keys}


_TYPES_OF_SCALES = {
    f"{part}.{field}"
    for part in ("weights", "input_activations")
    for field in ("scale_dtype", "zp_dtype", "block_structure", "actorder")
}


def _merged(answers: Sequence[Answer]) -> list[Row]:
    """Return the answers of one table as few rows: values of one key after another are joined."""
    table = answers[0].table
    rows = [({k: [v] for k, v in one.values.items()}, one.by, one.raises) for one in answers]
    for key in table.values:
        joined: dict[str, tuple[dict[str, list[Any]], Any, str]] = {}
        for values, by, raises in rows:
            others = {k: v for k, v in values.items() if k != key}
            first = joined.setdefault(json.dumps([others, by, raises]), (values, by, raises))
            first[0][key] += [one for one in values[key] if one not in first[0][key]]
        rows = list(joined.values())
    return [_row(table, *row) for row in rows]


def _row(table: Table, values: Mapping[str, Any], by: Any, raises: str) -> Row:
    row: Row = {"method": table.method, "values": values, "by": by}
    if table.model_types:
        row["model_types"] = table.model_types
    if raises:
        row["raises"] = raises
    return row

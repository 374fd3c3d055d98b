"""Inputs that are valid as far as their formats go, and as large as those allow."""

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType

from support.bad_input.making import CONFIG, GOOD_CONFIG, GOOD_WEIGHTS, INDEX, WEIGHTS, whole

from auditor.audit.default_configs import snapshot_of_type

_LENGTH = 8 + int.from_bytes(GOOD_WEIGHTS[:8], "little")
_OWN = GOOD_WEIGHTS[8:_LENGTH].rstrip()
_DATA = len(GOOD_WEIGHTS) - _LENGTH
_NAMES = 5_000_000  # characters of names, as many as are read
_ROOM = 100_000_000  # bytes of a header, as the format allows

Make = Callable[[Path], object]


def _weights(folder: Path, more: Iterable[str], before: str = "") -> None:
    """A sound header, with more before its first tensor and behind its last."""
    whole(folder)
    header = (
        b"{" + before.encode() + _OWN[1:-1] + b"".join(f",{one}".encode() for one in more)
    ) + b"}"
    content = struct.pack("<Q", len(header)) + header + GOOD_WEIGHTS[_LENGTH:]
    (folder / WEIGHTS).write_bytes(content)


def tensors(names: Iterable[str], shape: str = "[0]") -> Make:
    """Tensors without elements: as many as there are names."""
    tail = f'":{{"dtype":"F32","shape":{shape},"data_offsets":[{_DATA},{_DATA}]}}'
    every = tuple(names)
    return lambda folder: _weights(folder, (f'"{name}{tail}' for name in every))


def before(text: Callable[[], str]) -> Make:
    return lambda folder: _weights(folder, (), text())


def _numbered(form: str, most: int) -> Iterable[str]:
    return (form.format(number) for number in range(most))


def _random(most: int, parts: int) -> Iterable[str]:
    random = Random(1)
    for number in range(most):
        words = (random.choice("abcdefgh") * random.randint(1, 4) for _ in range(parts))
        yield ".".join((*words, str(number)))


def _shape(*dimensions: int | str, times: int = 1) -> str:
    return f"[{','.join(map(str, dimensions * times))}]"


def _metadata(pairs: int) -> str:
    return '"__metadata__":{' + ",".join(f'"{number}":""' for number in range(pairs)) + "},"


def index(weight_map: Mapping[str, str], **metadata: object) -> Make:
    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / CONFIG).write_bytes(GOOD_CONFIG)
        (folder / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}))

    return make


def config(**changes: object) -> Make:
    def make(folder: Path) -> None:
        whole(folder)
        text = json.dumps({**json.loads(GOOD_CONFIG), **changes})
        (folder / CONFIG).write_text(text)

    return make


def of_type(model_type: str, names: Iterable[str]) -> Make:
    """The default config of a type, over a small model's weights and names that do not fit."""

    def make(folder: Path) -> None:
        tensors(names)(folder)
        config = snapshot_of_type(model_type).config
        assert config is not None
        (folder / CONFIG).write_bytes(config.content)

    return make


def experts(model_type: str, number: int) -> Make:
    """More experts than the default config has."""
    parts = ("gate_proj", "up_proj", "down_proj")
    each = ((at // 1_800, at // 3 % 600, parts[at % 3]) for at in range(number))
    form = "model.layers.{}.mlp.experts.{}.{}.weight"
    return of_type(model_type, [form.format(*one) for one in each])


def _shards(number: int, files: int) -> dict[str, str]:
    return {f"x.{at}.w": f"s{at % files}.safetensors" for at in range(number)}


def _few(form: str, size: int) -> list[str]:
    """Names of so many bytes, as many as a header has room for."""
    repeated = form * (size // len(form))
    return [f"{number}.{repeated}" for number in range(_NAMES // size)]


def large() -> Mapping[str, Callable[[], Make]]:
    """By a name each; made when they are asked for, for some take as much memory as they cost."""
    spread = partial(_random, parts=11)
    return MappingProxyType(
        {
            "110,000 foreign names": lambda: tensors(_numbered("x.{}.weight", 110_000)),
            "300,000 foreign names": lambda: tensors(_numbered("x.{}.weight", 300_000)),
            "560,000 foreign names": lambda: tensors(_numbered("x.{}.w", 560_000)),
            "1,400,000 foreign names": lambda: tensors(map(str, range(1_400_000))),
            "90,000 foreign names": lambda: tensors(_numbered("x.{}.weight", 90_000)),
            "90,000 names of 12 parts": lambda: tensors(spread(90_000)),
            "90,000 names of one part": lambda: tensors(_numbered("{:032x}", 90_000)),
            "90,000 layers too many": lambda: tensors(
                f"encoder.layer.{at}.output.dense.bias" for at in range(9, 90_009)
            ),
            "90,000 buffers": lambda: tensors(_numbered("x.{}.position_ids", 90_000)),
            "90,000 names in capitals": lambda: tensors(_numbered("{}.LayerNorm.gamma", 90_000)),
            "90,000 experts": lambda: tensors(
                f"model.layers.{at % 60}.mlp.experts.{at}.w" for at in range(90_000)
            ),
            "95,000 experts of another model": lambda: experts("qwen3_moe", 95_000),
            "74,000 tensors that are not stored": lambda: of_type("qwen3_next", []),
            "100,000 names of 40 parts": lambda: tensors(f"{at}." * 40 for at in range(100_000)),
            "90,000 names in one deep module": lambda: tensors(
                "x." * 60 + str(at) for at in range(90_000)
            ),
            "names of 300 letters": lambda: tensors(_few("abc", 300)),
            "names of 4 kB, all dots": lambda: tensors(_few(".", 4_000)),
            "names of 4 kB, all digits": lambda: tensors(_few("1.", 4_000)),
            "a name of 12 MB": lambda: tensors(["x" * 12_000_000]),
            "a name of 12 MB, all dots": lambda: tensors(["." * 12_000_000]),
            "a name of 12 MB, all numbers": lambda: tensors(["1." * 6_000_000]),
            "a name of 90 MB": lambda: tensors(["x" * 90_000_000]),
            "a shape of a million dimensions": lambda: tensors(["x"], _shape(0, times=1_000_000)),
            "dimensions of 20 digits": lambda: tensors(["x"], _shape(0, 2**63, times=400_000)),
            "ten shapes of 100,000 dimensions": lambda: tensors(
                _numbered("x.{}", 10), _shape(0, times=100_000)
            ),
            "a name twice, with a million dimensions": lambda: before(
                lambda: (
                    '"pooler.dense.bias":{"dtype":"F32","shape":'
                    + _shape(0, times=1_000_000)
                    + ',"data_offsets":[0,0]},'
                )
            ),
            "3,000,000 pairs of metadata": lambda: before(lambda: _metadata(3_000_000)),
            "90,000 pairs of metadata": lambda: before(lambda: _metadata(90_000)),
            "metadata of 90 MB": lambda: before(
                lambda: '"__metadata__":{"a":"' + "x" * 90_000_000 + '"},'
            ),
            "metadata of 12 MB, escaped": lambda: before(
                lambda: '"__metadata__":{"a":"' + '\\"' * 6_000_000 + '"},'
            ),
            "a header of 100 MB of white space": lambda: before(lambda: " " * (_ROOM - _LENGTH)),
            "a header of 12 MB of white space": lambda: before(lambda: " " * 12_000_000),
            "an index of 100,000 shards": lambda: index(_shards(100_000, 100_000), total_size=1),
            "an index of 10,000 shards": lambda: index(_shards(10_000, 10_000), total_size=1),
            "290,000 names in 10,000 shards": lambda: index(_shards(290_000, 10_000), total_size=1),
            "240,000 names in 7 shards": lambda: index(_shards(240_000, 7), total_size=1),
            "290,000 names in 7 shards": lambda: index(_shards(290_000, 7), total_size=1),
            "an index of three long names": lambda: index(
                {f"{at}{'x' * 6_500_000}": "s.safetensors" for at in range(3)}
            ),
            "an index with 240,000 pairs of metadata": lambda: index(
                _shards(1, 1), **{str(at): at for at in range(240_000)}
            ),
            "a config of a million tensors": lambda: config(num_hidden_layers=62_000),
            "a config of 95,000 tensors": lambda: config(num_hidden_layers=5_900),
            "a config of 140,000 labels": lambda: config(
                id2label={str(at): f"LABEL_{at}" for at in range(140_000)}
            ),
            "a config of one long text": lambda: config(x="y" * 15_900_000),
            "a config of 100,000 architectures": lambda: config(
                architectures=[f"{'A' * 90}{at}" for at in range(100_000)]
            ),
            "a config of deep lists": lambda: config(x=_nested(100), y=[[]] * 140_000),
        }
    )


def _nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value

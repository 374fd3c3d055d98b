"""Models as llama.cpp's converter writes them: names by the `gguf` package's own map, no weights.

What the converter does besides renaming is done here as its files (llama.cpp's conversion/*.py)
say: experts stacked, halves and heads split, layers of GPT-2 turned, axes of one dropped.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from support.gguf_files import ARRAY, STRING, U32, Pair, Tensor

from auditor.analytic import Config, catalogue
from auditor.analytic.expectation import Expectation, Role

gguf = pytest.importorskip("gguf", reason="the field's own names")

Shape = tuple[int, ...]
ARCHITECTURES = {
    "bert": "bert",
    "bloom": "bloom",
    "cohere": "command-r",
    "cohere2": "cohere2",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "falcon": "falcon",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "glm4": "glm4",
    "glm4_moe": "glm4moe",
    "gpt2": "gpt2",
    "gpt_bigcode": "starcoder",
    "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss",
    "granite": "granite",
    "granitemoe": "granitemoe",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "llama": "llama",
    "mamba": "mamba",
    "mistral": "llama",
    "mixtral": "llama",
    "modernbert": "modern-bert",
    "mpt": "mpt",
    "olmo2": "olmo2",
    "olmoe": "olmoe",
    "phi": "phi2",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "smollm3": "smollm3",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
    "t5": "t5",
}
# Keys of the metadata, and the keys of a config that they are written from.
_KEYS = {
    "block_count": ("num_hidden_layers",),
    "context_length": ("max_position_embeddings",),
    "embedding_length": ("hidden_size",),
    "feed_forward_length": ("intermediate_size", "n_inner", "ffn_hidden_size", "d_ff"),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.key_length": ("head_dim",),
    "expert_count": ("num_experts", "num_local_experts", "n_routed_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_shared_count": ("n_shared_experts",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "leading_dense_block_count": ("first_k_dense_replace", "num_dense_layers"),
    "nextn_predict_layers": ("num_nextn_predict_layers",),
    "attention.q_lora_rank": ("q_lora_rank",),
    "attention.kv_lora_rank": ("kv_lora_rank",),
    "attention.value_length_mla": ("v_head_dim",),
    "attention.relative_buckets_count": ("relative_attention_num_buckets",),
    "decoder_block_count": ("num_decoder_layers",),
    "shortconv.l_cache": ("conv_L_cache",),
    "ssm.state_size": ("state_size",),
    "ssm.conv_kernel": ("conv_kernel",),
    "vocab_size": ("vocab_size",),
}


_TIED = {"tie_word_embeddings": True}
# What llama.cpp does not have, by model type.
FIXED: Mapping[str, Mapping[str, Any]] = {
    "bert": {"is_decoder": False, "add_cross_attention": False},
    "bloom": _TIED,
    "cohere": {**_TIED, "attention_bias": False},
    "cohere2": {**_TIED, "attention_bias": False},
    "deepseek_v2": {"mlp_bias": False},
    "falcon": {**_TIED, "parallel_attn": True, "num_ln_in_parallel_attn": None},
    "gemma": _TIED,
    "gemma2": _TIED,
    "gpt2": {**_TIED, "add_cross_attention": False},
    "gpt_bigcode": {**_TIED, "add_cross_attention": False},
    "lfm2": {"conv_bias": False, "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {**_TIED, "tie_embedding": True, "conv_bias": False},
    "modernbert": {"norm_bias": False, "attention_bias": False, "mlp_bias": False},
    "mpt": _TIED,
    "phi": {"qk_layernorm": False},
    "qwen2_moe": {"decoder_sparse_step": 1, "mlp_only_layers": None, "qkv_bias": True},
    "qwen3_moe": {"decoder_sparse_step": 1, "mlp_only_layers": None},
}


class Values(NamedTuple):
    """A config's values, completed by its class."""

    model_type: str
    given: Mapping[str, Any]

    def get(self, key: str) -> Any:
        family = catalogue.family(self.model_type)
        own = family.synonyms.get(key, key)
        for name in (*family.aliases.get(own, ()), own, key):
            if name in self.given:
                return self.given[name]
        return family.defaults.get(own)

    @property
    def arch(self) -> str:
        return ARCHITECTURES[self.model_type]


def expectation(values: Values, target: str) -> Expectation:
    config = Config(values={"model_type": values.model_type, **values.given})
    return catalogue.expect(config, target)


def metadata(values: Values) -> list[Pair]:
    """What the converter writes of a config."""
    arch, found = values.arch, {}
    for key, names in _KEYS.items():
        stated = (one for name in names if type(one := values.get(name)) is int)
        number = next(stated, None)
        if number is not None:
            found[key] = number
    found.update(_by_class(values, found))
    vocabulary = found.pop("vocab_size") if arch in {"bert", "gpt2"} else None
    pairs: list[Pair] = [("general.architecture", STRING, arch)]
    for key, content in found.items():
        kind = ARRAY if isinstance(content, list) else U32
        pairs.append((f"{arch}.{key}", kind, (U32, content) if kind == ARRAY else content))
    if vocabulary is not None:
        pairs.append(("tokenizer.ggml.tokens", ARRAY, (STRING, ["a"] * vocabulary)))
    if arch == "bert":
        pairs.append(("tokenizer.ggml.token_type_count", U32, values.get("type_vocab_size")))
    return pairs


def _by_class(values: Values, found: Mapping[str, int]) -> dict[str, Any]:
    """What single converters write themselves."""
    width = found["embedding_length"]
    match values.model_type:
        case "gpt2" | "gpt_bigcode" | "falcon" | "bloom" | "mpt" if (
            "feed_forward_length" not in found
        ):
            more = {"feed_forward_length": 4 * width}
        case _:
            more = {}
    match values.model_type:
        case "gpt_bigcode":
            more["attention.head_count_kv"] = (
                1 if values.get("multi_query") else values.get("num_attention_heads")
            )
        case "falcon":
            more["attention.head_count_kv"] = (
                values.get("num_kv_heads") or values.get("num_attention_heads")
                if values.get("new_decoder_architecture")
                else 1
            )
        case "mamba":
            inner = values.get("intermediate_size") or values.get("expand") * width
            rank = values.get("time_step_rank")
            rank = -(-width // 16) if rank in {None, "auto"} else rank
            more |= {"ssm.inner_size": inner, "ssm.time_step_rank": rank}
            more |= {"attention.head_count": 0, "feed_forward_length": 0}
        case "deepseek_v2" | "deepseek_v3":
            rotated = values.get("qk_rope_head_dim")
            more["rope.dimension_count"] = rotated
            more["attention.key_length_mla"] = values.get("qk_nope_head_dim") + rotated
            more["attention.key_length"] = values.get("kv_lora_rank") + rotated
            more["attention.head_count_kv"] = 1
            more["nextn_predict_layers"] = 0
        case "glm4_moe":
            more["block_count"] = found["block_count"] + found["nextn_predict_layers"]
        case "lfm2" | "lfm2_moe":
            keys = found["attention.head_count_kv"]
            more["attention.head_count_kv"] = [keys * attends for attends in _attending(values)]
        case "t5":
            more["attention.key_length"] = values.get("d_kv")
    return more


def _attending(values: Values) -> list[bool]:
    kinds, numbers = values.get("layer_types"), values.get("full_attn_idxs")
    if kinds is not None:
        return [kind != "conv" for kind in kinds]
    count = values.get("num_hidden_layers")
    return [numbers is None or number in numbers for number in range(count)]


# --- tensors -------------------------------------------------------------------------------------

_EXPERT = re.compile(r"(.*\.experts|.*_layernorm\.norms)\.(\d+)\.?(.*)\.weight")
_DROPPED = {"bert": ("pooler.", "cls.", "bert.pooler.")}
_TURNED = re.compile(r".*\.(c_attn|c_proj|c_fc)\.weight")
_SQUEEZED = ("shared_expert_gate.weight", "conv1d.weight", "conv.conv.weight")


def tensors(values: Values, expected: Expectation, *, absorbed: bool = True) -> list[Tensor]:
    """The table of a file that holds all of the model; `absorbed`: as DeepSeek's since 2025."""
    more = (values.get(key) or 0 for key in ("num_nextn_predict_layers", "num_decoder_layers"))
    count = values.get("num_hidden_layers") + sum(more)
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == values.arch)
    names = gguf.get_tensor_name_map(arch, count)
    shapes = {
        tensor.name: tensor.shape
        for tensor in expected.tensors
        if tensor.role in {Role.PARAMETER, Role.BUFFER}
        and not tensor.name.startswith(_DROPPED.get(values.model_type, ("\n",)))
    }
    found = [
        Tensor(_mapped(names, name), shape)
        for name, shape in _converted(values, _merged(shapes), absorbed=absorbed)
    ]
    assert len({tensor.name for tensor in found}) == len(found)
    return found


def _mapped(names: Any, name: str) -> str:
    suffixes = (".weight", ".bias")
    bare = name.removeprefix("transformer.")  # as BLOOM's converter does
    found = names.get_name(name, suffixes) or names.get_name(bare, suffixes)
    assert found is not None, name
    return found


def _merged(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Experts, and the norms of heads, one above the other."""
    merged: dict[str, Shape] = {}
    for name, shape in shapes.items():
        if (expert := _EXPERT.fullmatch(name)) is None:
            merged[name] = shape
            continue
        path, _, rest = expert.groups()
        whole = f"{path}.{rest}.weight" if rest else f"{path.removesuffix('.norms')}.weight"
        merged[whole] = (merged.get(whole, (0,))[0] + 1, *shape)
    return merged


def _converted(
    values: Values, shapes: Mapping[str, Shape], *, absorbed: bool
) -> Iterator[tuple[str, Shape]]:
    for name, shape in shapes.items():
        match values.model_type:
            case "gpt2" if _TURNED.fullmatch(name):
                yield name, shape[::-1]
            case "gpt_oss" if ".experts." in name or name.endswith(".sinks"):
                yield from _gpt_oss(name, shape)
            case "granitemoe" if name.endswith(".input_linear.weight"):
                count, height, width = shape
                path = name.partition(".block_sparse_moe")[0]
                for half in ("gate", "up"):
                    yield f"{path}.mlp.experts.{half}_proj.weight", (count, height // 2, width)
            case "lfm2_moe" if ".experts." in name:
                yield name.removeprefix("model."), shape
            case "deepseek_v2" | "deepseek_v3" if absorbed and ".kv_b_proj." in name:
                heads, rank = values.get("num_attention_heads"), shape[1]
                keys = values.get("qk_nope_head_dim")
                yield name.replace("kv_b", "k_b"), (heads, rank, keys)
                yield name.replace("kv_b", "v_b"), (heads, shape[0] // heads - keys, rank)
            case _:
                known = re.sub(r"(e_score_correction|expert)_bias$", _biased, name)
                yield known, _squeezed(shape) if name.endswith(_SQUEEZED) else shape


def _biased(name: re.Match[str]) -> str:
    """The router's own balance, as the map knows it."""
    return "expert_bias.bias" if name[1] == "expert" else f"{name[1]}.bias"


def _squeezed(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1) or (1,)


def _gpt_oss(name: str, shape: Shape) -> Iterator[tuple[str, Shape]]:
    """Both halves of gates, in turns, and (E, in, out)."""
    if name.endswith(".sinks"):
        yield f"{name}.weight", shape
        return
    path, _, last = name.rpartition(".")
    stem, ending = (last[:-5], "bias") if last.endswith("_bias") else (last, "weight")
    if ending == "weight":
        shape = (*shape[:-2], *shape[-2:][::-1])
    if stem == "down_proj":
        yield f"{path}.down_proj.{ending}", shape
        return
    half = (shape[0], shape[1] // 2, *shape[2:])
    for part in ("gate_proj", "up_proj"):
        yield f"{path}.{part}.{ending}", half

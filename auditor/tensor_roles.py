"""The role of a tensor: its function in a transformer, read from a name of any library.

`layers.3.attention.wq.weight` of Meta, `blk.3.attn_q.weight` of GGUF and
`model.layers.3.self_attn.q_proj.weight` of transformers have one role. The tables look at names
only; the audit checks whether a tensor with the role really fits.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from auditor.names.kinds import NameKind, Numbers


class TensorRole(NamedTuple):
    """The function and position of a tensor; no two tensors of a model have the same role."""

    stack: str  # encoder, decoder, vision, or "" if the name does not contain it
    numbers: Numbers  # of its layer and its expert, without leading zeros
    part: str  # q, k, v, o, gate, up, down, first and second norm, ...
    kind: str  # weight or bias


_ATTENTION = (
    r"(?:(?:self_?attn|self_?attention|attention|attn|sa|attention\.self|attention\.attention"
    r"|mixer|multiheaddotproductattention_\d|multiheadattention_\d)[._])?"
)
_CROSS = (
    r"(?:encoder_attn|encdecattention|cross_?attn|cross_?attention|crossattention\.self"
    r"|inter_attention|encoder_decoder_attention|encdec_attn)[._]"
)
_MLP = (
    r"(?:(?:mlp|mlp_block|mlpblock_\d|feed_?forward|ffn|ff|intermediate|densereludense|mixer|moe"
    r"|block_sparse_moe|mlp\.dense|mlp\.experts\.local_experts)[._])?"
)
_SHARED = r"(?:(?:mlp|feed_forward|ffn|block_sparse_moe)\.)?shared_experts?\."
_Q = r"(?:q_proj|query|query_proj|wq|q|q_lin|to_q|q_attn)"
_K = r"(?:k_proj|key|key_proj|wk|k|k_lin|to_k)"
_V = r"(?:v_proj|value|value_proj|wv|v|v_lin|to_v)"
_O = (
    r"(?:o_proj|out_proj|output_proj|output_projection|dense|wo|o|out|out_lin|proj|c_proj"
    r"|linear_proj|to_out\.0|output\.dense|output)"
)
_QKV = (
    r"(?:qkv|qkv_proj|query_key_value|c_attn|in_proj|wqkv|linear_qkv|w_pack|attention_qkv"
    r"|att_proj|q_k_v)"
)

# Inside a layer: function of the tensor -> pattern of the text after the layer's number; the first
# match wins.
_IN_LAYER: Mapping[str, str] = {
    "cross-q": _CROSS + _Q,
    "cross-k": _CROSS + _K,
    "cross-v": _CROSS + _V,
    "cross-qkv": _CROSS + _QKV,
    "cross-o": f"(?:{_CROSS}{_O}|crossattention[.]output[.]dense)",
    "cross-norm": r"(?:encoder_attn_layer_norm|cross_attn_ln|cross_attn_norm"
    r"|post_inter_attention_layernorm|pre_cross_attention_layer_norm"
    r"|crossattention[.]output[.]layernorm)",
    "q-a-norm": _ATTENTION + r"(?:q_a_layernorm|q_a_norm|q_norm_a)",
    "kv-a-norm": _ATTENTION + r"(?:kv_a_layernorm|kv_a_norm|kv_norm)",
    "q-a": _ATTENTION + r"(?:q_a_proj|q_a|wq_a)",
    "q-b": _ATTENTION + r"(?:q_b_proj|q_b|wq_b)",
    "kv-a": _ATTENTION + r"(?:kv_a_proj_with_mqa|kv_a_mqa|wkv_a)",
    "kv-b": _ATTENTION + r"(?:kv_b_proj|kv_b|wkv_b)",
    "shared-gate": _SHARED + r"(?:gate_proj|w1)|ffn_gate_shexp",
    "shared-up": _SHARED + r"(?:up_proj|w3)|ffn_up_shexp",
    "shared-down": _SHARED + r"(?:down_proj|w2)|ffn_down_shexp",
    "all-gates": "ffn_gate_exps",
    "all-ups": "ffn_up_exps",
    "all-downs": "ffn_down_exps",
    "router": r"(?:(?:mlp|block_sparse_moe|feed_forward|moe|ffn)\.)?(?:router|gate_inp|ffn_gate_inp"
    r"|router\.layer)|(?:mlp|block_sparse_moe|feed_forward|moe|ffn)\.gate"
    r"(?:\.e_score_correction)?|exp_probs_b",
    "shared-router": r"(?:mlp\.)?shared_expert_gate|ffn_gate_inp_shexp",
    "q-norm": _ATTENTION + r"(?:q_norm|query_norm|q_layernorm|q_ln|attn_q_norm)",
    "k-norm": _ATTENTION + r"(?:k_norm|key_norm|k_layernorm|k_ln|attn_k_norm)",
    "bias-of-positions": _ATTENTION + r"(?:relative_attention_bias|attn_rel_b|rel_b)",
    "qkv": _ATTENTION + _QKV,
    "q": _ATTENTION + _Q,
    "k": _ATTENTION + _K,
    "v": _ATTENTION + _V,
    "gate": _MLP + r"(?:gate_proj|w1|wi_0|ffn_gate|gate)",
    "up": _MLP
    + r"(?:up_proj|w3|wi_1|ffn_up|up|fc1|c_fc|dense_h_to_4h|fc_in|linear_fc1|wi|lin1|linear1|0"
    r"|dense|dense_0|intermediate\.dense|dense_h_to_4h_swiglu|mlp1)",
    "gate-up": _MLP + r"(?:gate_up_proj|w13|gate_and_up_proj)",
    "down": _MLP
    + r"(?:down_proj|w2|ffn_down|down|fc2|dense_4h_to_h|fc_out|linear_fc2|lin2|linear2|2|dense_1"
    r"|mlp2)|mlp[._]c_proj|(?:densereludense|mlp|ffn)[._]wo|output\.dense|mlp[._]proj",
    "o": _ATTENTION + _O,
    "scale-1": r"(?:ls1|layer_scale1|gamma_1)(?:\.lambda1)?",
    "scale-2": r"(?:ls2|layer_scale2|gamma_2)(?:\.lambda1)?",
    "norm-1": r"(?:input_layernorm|attention_norm|attn_norm|ln_?1|norm_?1|layer_norm_?1"
    r"|self_attn_layer_norm|attention\.output\.layernorm|sa_layer_norm|layernorm_before"
    r"|attn_output_norm|attention_layernorm|attn_ln|pre_attention_layer_norm|layernorm_0"
    r"|pre_self_attention_layer_norm|attention\.layernorm|ln_attn|attention_layer_norm"
    r"|self_attention\.linear_qkv\.layer_norm|attention_ln)",
    "norm-1-after": r"post_attention_norm|post_self_attn_layernorm",
    "norm-2-after": r"post_ffw_norm|post_feedforward_layernorm|post_mlp_layernorm",
    "norm-2": r"(?:pre_feedforward_layernorm|post_attention_layernorm|ffn_norm|ln_?2|norm_?2"
    r"|layer_norm_?2"
    r"|final_layer_norm"
    r"|output\.layernorm|output_layer_norm|layernorm_after|layer_output_norm|mlp_ln|layernorm_2"
    r"|layernorm_1|pre_mlp_layernorm|pre_mlp_layer_norm|mlp\.linear_fc1\.layer_norm|ln_mlp"
    r"|ffn_layernorm|ffn_ln|mlp_norm)",
}

# T5's layers number their sublayers instead of naming them.
_T5 = re.compile(r"layer\.(\d)\.(.+)")
_T5_NORMS = {
    ("encoder", 0): "norm-1",
    ("encoder", 1): "norm-2",
    ("decoder", 0): "norm-1",
    ("decoder", 1): "cross-norm",
    ("decoder", 2): "norm-2",
}

# Outside the layers: function of the tensor -> pattern of the end of the name.
_OUTSIDE: Mapping[str, str] = {
    "type-embeddings": r"(?:token_type_embeddings|token_types|segment_embeddings"
    r"|tokentype_embeddings)",
    "embeddings-norm": r"(?:embeddings\.layernorm|emb_layer_norm|token_embd_norm"
    r"|layernorm_embedding|word_embeddings_layernorm|(?:word_embeddings|embedding)\.norm|emb_ln"
    r"|embeddings_layer_norm)",
    "mlm-dense": r"(?:cls\.predictions\.transform\.dense|lm_head\.dense|mlm_dense|cls\.dense)",
    "mlm-norm": r"(?:cls\.predictions\.transform\.layernorm|lm_head\.layer_?norm|mlm_ln)",
    "pooler": r"(?:pooler\.dense|pooler)",
    "patches": r"(?:patch_embed\.proj|patch_embeddings\.projection|patch_embedding|patch_embd"
    r"|visual\.conv1|embeddings\.patch_embedding|^embedding)",
    "mask-token": "mask_token",
    "class-token": r"(?:cls_token|class_embedding|class_embd|cls)",
    "first-norm": r"(?:pre_layrnorm|ln_pre|norm_pre)",
    "projection": r"(?:(?:visual|text)_projection|visual\.proj)",
    "conv-1": r"conv_?1",
    "conv-2": r"conv_?2",
    "positions": r"(?:wpe|position_embeddings|embed_positions|position_embd|pos_embed|pos_embd"
    r"|positional_embedding|position_embedding|posembed_input\.pos(?:_embedding)?)",
    "tokens": r"(?:embed_tokens|tok_embeddings|token_embd|wte|word_embeddings|token_embedder"
    r"|embed_in|token_embedding|shared|tokens_embed|embedder|embed)",
    "mlm-bias": r"cls\.predictions(?:\.output)?",
    "head": r"(?:lm_head|embed_out|output_layer|output|head|classifier|logits_dense"
    r"|lm_head\.decoder"
    r"|cls\.predictions\.decoder|proj_out)",
    "final-norm": r"(?:norm|ln_f|final_layernorm|final_layer_norm|output_norm|final_norm|ln_post|ln"
    r"|layernorm|layer_norm|post_layernorm|encoder_norm|decoder_norm|transformer\.norm|norm_f"
    r"|ln_final)",
}

_LIST = re.compile(
    r"(?:^|(?<=\.))(?:layers?|blocks?|blk|h|resblocks|encoderblock|encoder_block"
    r"|transformer_blocks)[._](\d{1,6})\."
)
_EXPERT = re.compile(r"(?:^|(?<=\.))(?:experts(?:\.local_experts)?|local_experts)[._](\d{1,6})\.")
_KINDS = {
    "weight": "weight",
    "kernel": "weight",
    "scale": "weight",
    "gamma": "weight",
    "embedding": "weight",
    "w": "weight",
    "g": "weight",
    "lambda1": "weight",
    "rel_embedding": "weight",
    "bias": "bias",
    "beta": "bias",
    "b": "bias",
}
_JOINED = re.compile(r"(.+)_(weight|bias)")  # in_proj_weight


# Patterns of names that only one library uses; the first library with a match counts.
_SOURCES: Mapping[str, str] = {
    "GGUF": r"(^|\.)(enc\.|dec\.)?blk\.\d+\.|(^|\.)token_embd(_norm)?\.|^v\.blk\.",
    "JAX or TensorFlow": r"[./](kernel|embedding)(:0)?$|/|encoderblock_\d",
    "Megatron or NeMo": r"linear_(qkv|fc\d)\.|(^|\.)language_model\.(encoder|transformer)\."
    r"|(^|\.)layers\.\d+\.(self_)?attention\.query_key_value\.",
    "fairseq": r"(^|\.)sentence_encoder\.|(^|\.)emb_layer_norm\.",
    "OpenAI": r"\.(attn|mlp)_ln\.|(^|\.)resblocks\.\d|(^|\.)positional_embedding$",
    "timm": r"(^|\.)blocks\.\d+\.(norm\d|attn\.qkv|mlp\.fc\d|ls\d)\b|(^|\.)patch_embed\.proj\.",
    "DeepSeek": r"(^|\.)attn\.w(q|q_a|kv_a|o)\.",
    "Meta": r"(^|\.)tok_embeddings\.|(^|\.)attention\.w[qkvo]\.|(^|\.)feed_forward\.w\d\.",
    "MLX": r"(^|\.)attention\.(query|key|value|out)_proj\."
    r"|(^|\.)layers\.\d+\.(linear|ln)\d\.",
}
_FUSED: Mapping[str, tuple[str, ...]] = {
    "qkv": ("q", "k", "v"),
    "cross-qkv": ("cross-q", "cross-k", "cross-v"),
    "gate-up": ("gate", "up"),
    "expert-gate-up": ("expert-gate", "expert-up"),
    "up": ("gate", "up"),  # in Megatron, if the activation has a gate
    "expert-up": ("expert-gate", "expert-up"),
}
_STACKED = {"all-gates": "expert-gate", "all-ups": "expert-up", "all-downs": "expert-down"}


def role_of(name: str) -> TensorRole | None:
    """Return the role of a stored or an expected tensor; None if its name fits no known role."""
    before, numbers, rest = _numbered(name)
    stack = _stack(before)
    part_and_kind = _part(stack, rest, inside=bool(numbers))
    return TensorRole(stack, numbers, *part_and_kind) if part_and_kind else None


def parts_of(role: TensorRole) -> list[TensorRole]:
    """Return the roles of the tensors that a fused tensor of this role contains."""
    return [role._replace(part=part) for part in _FUSED.get(role.part, ())]


def expert_of(role: TensorRole) -> TensorRole | None:
    """Return the role of the tensors, one of each expert, that are stacked in this role."""
    part = _STACKED.get(role.part)
    return role._replace(part=part) if part else None


def library_of(names: Collection[str], others: Collection[str]) -> str | None:
    """Return the library that has some of the names, and whose pattern fits none of the others."""
    for library, text in _SOURCES.items():
        pattern = re.compile(text)
        if any(map(pattern.search, names)) and not any(map(pattern.search, others)):
            return library
    return None


def roles_of(
    kind: NameKind, spelt: Callable[[str], str] = str
) -> Mapping[TensorRole, list[tuple[Numbers, str]]]:
    """Return {role without numbers: [(numbers, name), ...]} for the names of a kind.

    Names of a kind share a role, except names with numbers besides those of layer and expert: in
    T5 such a number distinguishes attention from MLP. `spelt` maps a name to the name that is
    looked up.
    """
    names_by_role: dict[TensorRole, list[tuple[Numbers, str]]] = {}
    count = len(kind.places)
    marks = tuple(map(str, range(1, count + 1)))
    zeros, read_marks = _numbered(kind.pattern)[1], _numbered(kind.filled(marks))[1]
    if zeros == ("0",) * count and read_marks == marks:  # only numbers of layer and expert
        if role := role_of(spelt(kind.pattern)):
            numbers = kind.numbers
            if any(map(_has_zeros, set(chain.from_iterable(numbers)))):
                numbers = [tuple(map(_without_zeros, one)) for one in numbers]
            names_by_role[role._replace(numbers=())] = list(zip(numbers, kind.names, strict=True))
        return names_by_role
    for name in kind.names:
        if role := role_of(spelt(name)):
            names_by_role.setdefault(role._replace(numbers=()), []).append((role.numbers, name))
    return names_by_role


def _has_zeros(number: str) -> bool:
    return len(number) > 1 and number[0] == "0"


def _without_zeros(number: str) -> str:
    return number.lstrip("0") or "0"


def _numbered(name: str) -> tuple[str, Numbers, str]:
    """Split a name into the text before the layer's number, (layer, expert), and the rest."""
    plain = name.lower().replace("/", ".").removesuffix(":0")
    listed = _LIST.search(plain)
    if listed is None:
        return plain, (), plain
    before, rest = plain[: listed.start()], plain[listed.end() :]
    if expert := _EXPERT.search(rest):
        numbers = (_without_zeros(listed[1]), _without_zeros(expert[1]))
        return before, numbers, f"experts.{rest[expert.end() :]}"
    return before, (_without_zeros(listed[1]),), rest


@lru_cache(maxsize=4096)
def _stack(before: str) -> str:
    if re.search(r"(^|\.)(visual|vision|vision_model|vision_tower|v)[._]", before):
        return "vision"
    if re.search(r"(^|[._])dec(oder)?([._]|$)", before):
        return "decoder"
    return "encoder" if re.search(r"(^|[._])enc(oder)?([._]|$)", before) else ""


@lru_cache(maxsize=4096)  # a model has few kinds of names, each in every layer
def _part(stack: str, rest: str, *, inside: bool) -> tuple[str, str] | None:
    """Return (function, "weight" or "bias"), from a name or its rest after the layer's number."""
    path, kind = _kind(rest)
    if not inside:
        for part, pattern in _outside().items():
            if pattern.search(path):
                return part, kind
        return None
    experts = path.startswith("experts.")
    path = path.removeprefix("experts.")
    if t5 := _T5.fullmatch(path):
        if t5[2] == "layer_norm":
            norm = _T5_NORMS.get((stack or "encoder", int(t5[1])))
            return (norm, kind) if norm else None
        path = t5[2]
    for part, pattern in _in_layer().items():
        if pattern.fullmatch(path):
            return f"expert-{part}" if experts else part, kind
    return None


def _kind(rest: str) -> tuple[str, str]:
    """Split a name into its module's path and "weight" or "bias"."""
    path, _, last = rest.rpartition(".")
    if last in _KINDS and path:
        return path, _KINDS[last]
    if joined := _JOINED.fullmatch(last):
        return (f"{path}.{joined[1]}" if path else joined[1]), joined[2]
    return rest, "weight"


@lru_cache(maxsize=1)
def _in_layer() -> Mapping[str, re.Pattern[str]]:
    return {part: re.compile(pattern) for part, pattern in _IN_LAYER.items()}


@lru_cache(maxsize=1)
def _outside() -> Mapping[str, re.Pattern[str]]:
    return {part: re.compile(rf"(?:^|\.){pattern}$") for part, pattern in _OUTSIDE.items()}

"""Faults of names and shapes: wrappers, numbers, adapters, ranks, other layouts."""

import json
import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace
from support.faults.fault import Fault, of_shape, rewritten, tensors_of
from support.faults.layouts import LAYOUTS, as_others, fused

from auditor.checkpoint.snapshot import Snapshot
from auditor.tensors import StoredTensor

LAYER = re.compile(r"^(.*?\b(?:layers?|h|block|blocks)\.)(\d+)(\..*)$")
COUNTS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
ATTENTION = re.compile(
    r"(self_attn|attention|attn|self|SelfAttention)\.(q_proj|v_proj|query|value|q|v|q_lin|v_lin"
    r"|c_attn|qkv_proj|query_key_value|Wqkv|query_proj|value_proj|q_b_proj)\.weight$"
)
APART = (
    (("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    (("query", "key", "value"), "query_key_value"),
    (("q_lin", "k_lin", "v_lin"), "in_proj"),
    (("query_proj", "key_proj", "value_proj"), "in_proj"),
    (("q", "k", "v"), "qkv"),
)
GATED = ((("gate_proj", "up_proj"), "gate_up_proj"), (("wi_0", "wi_1"), "wi"))
NOT_DIVIDED = re.compile(
    r"position|token_type|(gate|router)\.weight$|_a_proj|norm|patch|ln_|pooler"
)
ROW = re.compile(
    r"(o_proj|out_proj|down_proj|w2|fc2|out_lin|lin2|dense_4h_to_h|fc_out|wo|Wo|\.o)\.weight$"
    r"|(attention\.output\.dense|\d\.output\.dense|attention\.dense|attn\.o|attn\.proj)\.weight$"
    r"|(linear_fc2|c_proj|output_dense|self_attn\.projection|\d\.proj)\.weight$"
)
COLUMN = re.compile(
    r"([qkv]_proj|[qkv]_lin|query|key|value|(query|key|value)_proj|qkv_proj|gate_proj|up_proj|w1|w3"
    r"|gate_up_proj|fc1|lin1|fc_in|wi(_\d)?|query_key_value|dense_h_to_4h|intermediate\.dense"
    r"|[qk]v?_b_proj|\.[qkv]|qkv|linear_fc1|c_fc|intermediate_dense)\.(weight|bias)$"
)
VOCABULARY = re.compile(
    r"(embed_tokens|word_embeddings|wte|embed_in|embed_out|lm_head|shared|token_embedding)\.weight$"
)


def name_faults(name: str, snapshot: Snapshot) -> Iterator[Fault]:
    """Every single one of them that can be planted in that checkpoint."""
    for plant in (
        _wrapped,
        _renumbered,
        _adapted,
        _fused,
        _transposed,
        _sharded,
        _divided,
        _staged,
        _experts,
        _foreign,
    ):
        for label, cause, changed in plant(name, snapshot):
            yield Fault(name=f"{name}, {label}", snapshot=changed, cause=cause)


Planted = Iterator[tuple[str, str, Snapshot]]


def renamed(snapshot: Snapshot, rename) -> Snapshot:
    return rewritten(snapshot, lambda one: (one._replace(name=rename(one.name)),))


def _wrapped(_name: str, snapshot: Snapshot) -> Planted:
    cause = "wrapper-prefix"
    for prefix in ("base_model.model.", "_fsdp_wrapped_module.", "net.encoder_q.", "backbone/"):
        yield f"behind {prefix}", cause, renamed(snapshot, lambda one, p=prefix: f"{p}{one}")
    if not any(LAYER.match(one.name) for one in tensors_of(snapshot)):
        return
    both = r"\1\2._fsdp_wrapped_module._checkpoint_wrapped_module\3"
    yield "layers in FSDP and checkpointing", cause, renamed(snapshot, lambda s: LAYER.sub(both, s))
    root = renamed(
        snapshot, lambda one: "_fsdp_wrapped_module." + LAYER.sub(r"\1\2._orig_mod\3", one)
    )
    yield "FSDP at the root, compiled layers", cause, root


def _renumbered(_name: str, snapshot: Snapshot) -> Planted:
    cause = "layers-renumbered"
    layers = {int(found[2]) for one in tensors_of(snapshot) if (found := LAYER.match(one.name))}
    config = json.loads(snapshot.config.content)
    key = next((one for one in COUNTS if isinstance(config.get(one), int)), None)
    if len(layers) < 2:
        return

    def moved(by: dict[int, int]) -> Snapshot:
        def rename(name: str) -> str:
            found = LAYER.match(name)
            return f"{found[1]}{by[int(found[2])]}{found[3]}" if found else name

        return renamed(snapshot, rename)

    yield "layers from 1", cause, moved({one: one + 1 for one in layers})
    yield "layers from 100", cause, moved({one: one + 100 for one in layers})
    yield "every other layer", cause, moved({one: 2 * one for one in layers})
    lists = {found[1] for one in tensors_of(snapshot) if (found := LAYER.match(one.name))}
    if key and len(layers) > 2 and len(lists) == 1:
        left = rewritten(
            snapshot,
            lambda one: () if (found := LAYER.match(one.name)) and found[2] == "1" else (one,),
        )
        yield "a layer is pruned and the config is not", cause, left


def _adapted(_name: str, snapshot: Snapshot) -> Planted:
    cause = "unmerged-adapter"
    if not any(ATTENTION.search(one.name) for one in tensors_of(snapshot)):
        return

    def lora(root: str, base: str, own: str):
        def change(one: StoredTensor) -> Iterable[StoredTensor]:
            if not ATTENTION.search(one.name):
                return (one._replace(name=f"{root}{one.name}"),)
            path = f"{root}{one.name.removesuffix('.weight')}"
            rows, columns = one.shape
            return (
                one._replace(name=f"{path}{base}.weight"),
                of_shape(one, 4, columns, name=f"{path}.lora_A{own}.weight"),
                of_shape(one, rows, 4, name=f"{path}.lora_B{own}.weight"),
            )

        return rewritten(snapshot, change)

    yield "LoRA over it", cause, lora("", ".base_layer", ".default")
    yield "LoRA of PEFT", cause, lora("base_model.model.", ".base_layer", ".default")
    yield "LoRA left beside", cause, lora("", "", "")


def _fused(_name: str, snapshot: Snapshot) -> Planted:
    cause, tensors = "fused-names", tensors_of(snapshot)
    for label, groups in (("qkv in one", APART), ("gate and up in one", GATED)):
        made = list(fused(tensors, groups))
        if len(made) < len(tensors):
            yield label, cause, with_all(snapshot, made)
    apart = list(_cut_qkv(tensors, json.loads(snapshot.config.content)))
    if len(apart) > len(tensors):
        yield "qkv apart", cause, with_all(snapshot, apart)


def _cut_qkv(tensors: list[StoredTensor], config: dict) -> Iterator[StoredTensor]:
    heads = config.get("num_attention_heads") or config.get("n_head") or 1
    shared = config.get("num_key_value_heads") or heads
    for one in tensors:
        module, _, kind = one.name.rpartition(".")
        if not module.endswith(("qkv_proj", "query_key_value", "Wqkv", "gate_up_proj")):
            yield one
            continue
        path, rows = module.rpartition(".")[0], one.shape[0]
        parts = {"gate_proj": 1, "up_proj": 1}
        if not module.endswith("gate_up_proj"):
            parts = {"q_proj": heads, "k_proj": shared, "v_proj": shared}
        for part, share in parts.items():
            length = rows * share // sum(parts.values())
            yield of_shape(one, length, *one.shape[1:], name=f"{path}.{part}.{kind}")


def with_all(snapshot: Snapshot, tensors: list[StoredTensor]) -> Snapshot:
    (head,) = snapshot.headers
    tensors = tuple(sorted(tensors, key=lambda one: one.name))
    return replace(snapshot, headers=(replace(head, known=replace(head.parsed, tensors=tensors)),))


def _transposed(_name: str, snapshot: Snapshot) -> Planted:
    def turn(one: StoredTensor) -> Iterable[StoredTensor]:
        inside = LAYER.match(one.name) and len(one.shape) == 2
        return (of_shape(one, *one.shape[::-1]) if inside else one,)

    if any(
        LAYER.match(one.name) and len(one.shape) == 2 and one.shape[0] != one.shape[1]
        for one in tensors_of(snapshot)
    ):
        yield "matrices of layers transposed", "transposed", rewritten(snapshot, turn)

    def deepen(one: StoredTensor) -> Iterable[StoredTensor]:
        return (of_shape(one, 1, *one.shape) if len(one.shape) == 1 else one,)

    if any(len(one.shape) == 1 for one in tensors_of(snapshot)):
        yield "vectors with an axis in front", "extra-axis", rewritten(snapshot, deepen)


def _sharded(_name: str, snapshot: Snapshot) -> Planted:
    cause = "unsharded-save"
    empty = rewritten(snapshot, lambda one: (of_shape(one, 0),))
    yield "ZeRO-3, all empty", cause, empty
    most = rewritten(snapshot, lambda one: (of_shape(one, 0) if len(one.shape) > 1 else one,))
    yield "ZeRO-3, matrices empty", cause, most
    flat = rewritten(
        snapshot,
        lambda one: (of_shape(one, (one.elements + 7) // 8) if len(one.shape) > 1 else one,),
    )
    yield "flattened, an eighth of each", cause, flat
    learned = [one for one in tensors_of(snapshot) if one.name != "final_logits_bias"]
    buffers = [one for one in tensors_of(snapshot) if one.name == "final_logits_bias"]
    total = sum(one.elements for one in learned)
    one_of = of_shape(learned[0], -(-total // 4), name="_flat_param")
    yield "one flat parameter of four", cause, with_all(snapshot, [one_of, *buffers])


def _divided(_name: str, snapshot: Snapshot) -> Planted:
    tensors = tensors_of(snapshot)
    axes = {one.name: axis for one in tensors if (axis := _axis(one)) is not None}
    kinds = {re.sub(r"\d+", "#", name) for name in axes if LAYER.match(name)}
    whole = {re.sub(r"\d+", "#", one.name) for one in tensors if LAYER.match(one.name)}
    if not {0, 1} <= set(axes.values()) or len(kinds) < 4:
        return
    if any(re.search("conv|rel_attn|expert_gate|c_attn", one) for one in whole):
        return  # of which no software divides what
    for ranks in (2, 4):
        if any(one.shape[axes[one.name]] % ranks for one in tensors if one.name in axes):
            continue

        def part(one: StoredTensor, ranks: int = ranks) -> Iterable[StoredTensor]:
            if one.name not in axes:
                return (one,)
            shape = list(one.shape)
            shape[axes[one.name]] //= ranks
            return (of_shape(one, *shape),)

        yield f"one rank of {ranks}", "parallel-rank", rewritten(snapshot, part)


def _axis(one: StoredTensor) -> int | None:
    """The axis that tensor parallelism divides."""
    if NOT_DIVIDED.search(one.name):
        return None
    if VOCABULARY.search(one.name):
        return 0
    if not LAYER.match(one.name):
        return None
    if ROW.search(one.name):
        return 1
    return 0 if COLUMN.search(one.name) else None


def _staged(_name: str, snapshot: Snapshot) -> Planted:
    tensors = tensors_of(snapshot)
    found = {one.name: LAYER.match(one.name) for one in tensors}
    lists = {match[1] for match in found.values() if match}
    count = len({match[2] for match in found.values() if match})
    if len(lists) != 1 or count < 3 or any("conv" in one.name for one in tensors):
        return
    (layers,) = lists
    outside = [one.name for one in tensors if not found[one.name]]
    late = [one for one in outside if re.search(r"norm|ln_f|head|embed_out|classifier|cls\.", one)]
    late = [one for one in late if "mbedding" not in one]
    early = [one for one in outside if one not in late]
    stages = {"first": (range(1), early), "last": (range(count - 1, count), late)}
    stages["middle"] = (range(1, 2), [])
    for label, (numbers, also) in stages.items():
        kept = {f"{layers}{one}." for one in numbers}

        def of_stage(one: StoredTensor, kept=kept, also=also) -> Iterable[StoredTensor]:
            match = found[one.name]
            here = f"{match[1]}{match[2]}." in kept if match else one.name in also
            return (one,) if here else ()

        if set(also) != set(outside):
            yield f"{label} stage", "parallel-rank", rewritten(snapshot, of_stage)


def _experts(_name: str, snapshot: Snapshot) -> Planted:
    number = re.compile(r"\.experts\.(\d+)\.")
    count = len({found[1] for one in tensors_of(snapshot) if (found := number.search(one.name))})
    if count < 4:
        return
    for label, here in (("first", range(count // 2)), ("last", range(count // 2, count))):

        def mine(one: StoredTensor, here: range = here) -> Iterable[StoredTensor]:
            found = number.search(one.name)
            return (one,) if not found or int(found[1]) in here else ()

        yield f"{label} half of the experts", "parallel-rank", rewritten(snapshot, mine)


def _foreign(name: str, snapshot: Snapshot) -> Planted:
    for layout in LAYOUTS.get(name, ()):
        made = list(as_others(tensors_of(snapshot), layout))
        yield f"names of {layout.label}", "foreign-names", with_all(snapshot, made)

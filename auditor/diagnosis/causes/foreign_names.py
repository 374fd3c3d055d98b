"""foreign-names: names of another library's files in one that should have transformers'.

To do: Convert the weights with the script of transformers for that library, or load them with
the software that wrote them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.analytic import ExpectedTensor
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import shaped, with_tensors
from auditor.diagnosis.roles import TensorRole, role_of
from auditor.tensors import StoredTensor

CAUSE = "foreign-names"

# Whose names they are, by what only those have; the first of which some name has.
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
_DIGITS = re.compile(r"\d+")
_BUFFERS = re.compile(r"(^|[._])(rope[._]freqs|rope_freqs|inv_freq|_extra_state)(\.|$|[._])")
_FUSED: Mapping[str, tuple[str, ...]] = {
    "qkv": ("q", "k", "v"),
    "cross-qkv": ("cross-q", "cross-k", "cross-v"),
    "gate-up": ("gate", "up"),
    "up": ("gate", "up"),  # of Megatron, where the activation has a gate
}
_STACKED = {"all-gates": "expert-gate", "all-ups": "expert-up", "all-downs": "expert-down"}
_EXPERT = "expert-"
_AFTER_MLP = "post_feedforward_layernorm"  # then that after attention is not that before the MLP
_ALIASES = {"q-norm": "q-a-norm"}  # of DeepSeek, whose queries have no other norm
_LEAST = 0.5  # of the missing names that must get one


class _Names(NamedTuple):
    """Names by role, and what stands instead of them."""

    stored: dict[TensorRole, StoredTensor]
    missing: dict[TensorRole, ExpectedTensor]
    instead: dict[str, tuple[StoredTensor, ...]]


def undoings(case: Case) -> Iterator[Undoing]:
    """Every stored tensor under the name that the class has for its role."""
    if not (case.unexpected and case.missing):
        return
    source = _source(case.unexpected)
    if source is None:
        return
    names = _by_role(case)
    _join(names)
    _take_along(case, names.instead)
    given = {one.name for made in names.instead.values() for one in made}
    if len(given) < _LEAST * len(case.missing):
        return
    count = len(names.instead)
    example = next((pair for pair in names.instead.items() if pair[1]), ("", ()))
    yield Undoing(
        cause=CAUSE,
        snapshot=with_tensors(case.snapshot, names.instead),
        renames={name: made[0].name for name, made in names.instead.items() if len(made) == 1},
        summary=f"{count:,} of {len(case.shapes):,} names are those of {source}, not of "
        f"transformers: {example[0]} is {' and '.join(one.name for one in example[1])} there",
        fix=f"convert the weights to transformers' names (its convert_*_to_hf script for {source}),"
        " or load them with the software that wrote them",
        evidence=(f"by transformers' names {len(given):,} of them are expected",),
    )


def _source(names: Iterable[str]) -> str | None:
    """Whose names they are; None: nobody's that is known."""
    text = "\n".join({_DIGITS.sub("0", name) for name in names})  # a model has few kinds
    for source, pattern in _SOURCES.items():
        if re.search(pattern, text, re.MULTILINE):
            return source
    return None


def _by_role(case: Case) -> _Names:
    """Strange and missing names by role."""
    after_mlp = any(_AFTER_MLP in tensor.name for tensor in case.lacking)
    norms = ("post_attention_layernorm", "post_attention_norm") if after_mlp else ("", "")
    roles = [(role_of(tensor.name.replace(*norms)), tensor) for tensor in case.lacking]
    both = {"encoder", "decoder"} <= {role.stack for role, _ in roles if role and role.numbers}

    def placed(role: TensorRole) -> TensorRole:
        """Of a model that has not both, a name may say either, or neither."""
        said = both or not role.stack or role.stack == "vision"
        return role if said else role._replace(stack="")

    names = _Names({}, {}, {})
    for role, expected in roles:
        if role is not None:
            names.missing.setdefault(placed(role), expected)
    for tensor in case.strange:
        if _BUFFERS.search(tensor.name):
            names.instead[tensor.name] = ()
        elif found := role_of(tensor.name):
            names.stored.setdefault(placed(found), tensor)
    return names


def _join(names: _Names) -> None:
    """What is put instead of each stored tensor that has a role of missing ones."""
    experts: dict[TensorRole, list[ExpectedTensor]] = {}
    for role, expected in names.missing.items():
        if len(role.numbers) > 1:
            experts.setdefault(role._replace(numbers=role.numbers[:1]), []).append(expected)
    for role, tensor in names.stored.items():
        if role.part in _STACKED:
            whole = experts.get(role._replace(part=_STACKED[role.part]), [])
            if whole and _adds_up([tensor], whole):
                names.instead[tensor.name] = _cut(tensor, whole)
            continue
        one, parts = _of_role(names, role), _parts(role)
        due = [names.missing[part] for part in parts if part in names.missing]
        apart = any(part in names.stored for part in parts if part != role)
        if len(due) == len(parts) > 1 and not apart and _adds_up([tensor], due):
            names.instead[tensor.name] = _cut(tensor, due)
        elif one is not None:
            shape = one.shape if _same(tensor.shape, one.shape) else tensor.shape
            names.instead[tensor.name] = (_named(tensor, one.name, shape),)
    for role, expected in names.missing.items():
        pieces = [names.stored[part] for part in _parts(role) if part in names.stored]
        if len(pieces) > 1 and role not in names.stored and _adds_up(pieces, [expected]):
            first, *rest = pieces
            names.instead[first.name] = (_named(first, expected.name, expected.shape),)
            names.instead.update(dict.fromkeys((one.name for one in rest), ()))


def _of_role(names: _Names, role: TensorRole) -> ExpectedTensor | None:
    """The missing tensor of a role, whose part may have two names."""
    found = names.missing.get(role)
    if found is None and role.part in _ALIASES:
        return names.missing.get(role._replace(part=_ALIASES[role.part]))
    return found


def _take_along(case: Case, instead: dict[str, tuple[StoredTensor, ...]]) -> None:
    """The scales of weights go where their weights go."""
    for tensor in case.strange:
        path, _, last = tensor.name.rpartition(".")
        made = instead.get(f"{path}.weight", ()) if last.startswith("weight_") else ()
        if len(made) == 1 and tensor.name not in instead:
            name = f"{made[0].name.removesuffix('weight')}{last}"
            instead[tensor.name] = (tensor._replace(name=name),)


def _parts(role: TensorRole) -> list[TensorRole]:
    """The roles of what may be fused in one tensor of a role."""
    bare = role.part.removeprefix(_EXPERT)
    before = _EXPERT if role.part != bare else ""
    return [role._replace(part=f"{before}{part}") for part in _FUSED.get(bare, ())]


def _adds_up(stored: list[StoredTensor], expected: list[ExpectedTensor]) -> bool:
    """Whether both have as many elements; names of an index alone have none that are known."""
    held = [one.elements for one in stored]
    return None in held or sum(one or 0 for one in held) == sum(one.elements for one in expected)


def _cut(tensor: StoredTensor, expected: list[ExpectedTensor]) -> tuple[StoredTensor, ...]:
    return tuple(shaped(tensor, one.shape, one.name) for one in expected)


def _named(tensor: StoredTensor, name: str, shape: tuple[int, ...] | None) -> StoredTensor:
    return shaped(tensor, shape, name) if shape is not None else tensor._replace(name=name)


def _same(stored: tuple[int, ...] | None, expected: tuple[int, ...]) -> bool:
    """Whether shapes are the same but for the order of axes, or for heads that have their own."""
    if stored is None or prod(stored) != prod(expected):
        return False
    return len(stored) != len(expected) or sorted(stored) == sorted(expected)

"""foreign-names: names are those of another library and not of transformers.

To do: Convert the weights with the script of transformers for that library, or load them with
the software that wrote them.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.analytic import ExpectedTensor
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import renamed, shaped, with_tensors
from auditor.diagnosis.name_kinds import NameKind, Numbers, name_pattern, numbers_in
from auditor.diagnosis.roles import TensorRole, roles_of
from auditor.tensors import StoredTensor

CAUSE = "foreign-names"

# Patterns of names that only one library has; the first library with a match wins.
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
_BUFFERS = re.compile(r"(^|[._])(rope[._]freqs|rope_freqs|inv_freq|_extra_state)(\.|$|[._])")
_FUSED: Mapping[str, tuple[str, ...]] = {
    "qkv": ("q", "k", "v"),
    "cross-qkv": ("cross-q", "cross-k", "cross-v"),
    "gate-up": ("gate", "up"),
    "up": ("gate", "up"),  # of Megatron, if the activation has a gate
}
_STACKED = {"all-gates": "expert-gate", "all-ups": "expert-up", "all-downs": "expert-down"}
_EXPERT = "expert-"
_WEIGHT = "weight"
_AFTER_MLP = (
    "post_feedforward_layernorm"  # with it, the norm after attention is not the one before the MLP
)
_ALIASES = {"q-norm": "q-a-norm"}  # of DeepSeek, which has no other norm of queries
_LEAST = 0.5  # least share of the missing names that must get a tensor


class _Names(NamedTuple):
    """Tensors by role and numbers, and the tensors that replace stored ones."""

    stored: dict[TensorRole, dict[Numbers, StoredTensor]]
    missing: dict[TensorRole, dict[Numbers, ExpectedTensor]]
    instead: dict[str, tuple[StoredTensor, ...]]


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield every stored tensor under the class's name for its role."""
    if not (case.unexpected and case.missing):
        return
    source = _source(case)
    if source is None:
        return
    names = _by_role(case)
    _join(names)
    named = len({tensor.name for tensors in names.instead.values() for tensor in tensors})
    if named < _LEAST * len(case.missing):
        return
    _take_alike(case, names.instead)
    _take_scales(case, names.instead)
    count = len(names.instead)
    example = next((pair for pair in names.instead.items() if pair[1]), ("", ()))
    yield Undoing(
        cause=CAUSE,
        snapshot=with_tensors(case.snapshot, names.instead),
        renames={old: new[0].name for old, new in names.instead.items() if len(new) == 1},
        summary=f"{count:,} of {len(case.shapes):,} names are those of {source}, not of "
        f"transformers: {example[0]} is {' and '.join(one.name for one in example[1])} there",
        fix=f"convert the weights to transformers' names (its convert_*_to_hf script for {source}),"
        " or load them with the software that wrote them",
        evidence=(f"by transformers' names {named:,} of them are expected",),
    )


def _source(case: Case) -> str | None:
    """Return the library that uses such names where the class has others; None if none is known."""
    unexpected = "\n".join(kind.pattern for kind in case.unexpected_kinds)
    missing = "\n".join(kind.pattern for kind in case.missing_kinds)
    for source, text in _SOURCES.items():
        pattern = re.compile(text, re.MULTILINE)
        if pattern.search(unexpected) and not pattern.search(missing):
            return source
    return None


def _by_role(case: Case) -> _Names:
    """Group strange and missing names by role."""
    after_mlp = any(_AFTER_MLP in kind.pattern for kind in case.missing_kinds)
    spelt = _first_of_two_norms if after_mlp else str
    missing_roles = [roles_of(kind, spelt) for kind in case.missing_kinds]
    stacks = {role.stack for one in missing_roles for role, names in one.items() if names[0][0]}
    both = {"encoder", "decoder"} <= stacks

    def placed(role: TensorRole) -> TensorRole:
        """Ignore the stack in the role unless the model has both encoder and decoder."""
        is_distinct = both or not role.stack or role.stack == "vision"
        return role if is_distinct else role._replace(stack="")

    names = _Names({}, {}, {})
    expected = case.lacking_named
    for roles in missing_roles:
        for role, role_names in roles.items():
            new = {numbers: expected[name] for numbers, name in role_names}
            tensors = names.missing.setdefault(placed(role), new)
            if tensors is not new:
                tensors.update({**new, **tensors})
    stored = case.strange_named
    for kind in case.strange_kinds:
        if _BUFFERS.search(kind.pattern):
            names.instead.update(dict.fromkeys(kind.names, ()))
            continue
        for role, role_names in roles_of(kind).items():
            here = {numbers: stored[name] for numbers, name in role_names}
            held = names.stored.setdefault(placed(role), here)
            if held is not here:
                held.update({**here, **held})
    return names


def _first_of_two_norms(name: str) -> str:
    return name.replace("post_attention_layernorm", "post_attention_norm")


def _join(names: _Names) -> None:
    """Fill `names.instead` with replacements of tensors that share a role with missing ones."""
    for role, held in names.stored.items():
        if role.part in _STACKED:
            experts = names.missing.get(role._replace(part=_STACKED[role.part]), {})
            names.instead.update(_unstacked(held, experts))
        else:
            names.instead.update(_renamed_or_cut(names, role, held))
    for role, missing in names.missing.items():
        names.instead.update(_put_together(names, role, missing))


_Instead = Iterator[tuple[str, tuple[StoredTensor, ...]]]


def _unstacked(
    held: Mapping[Numbers, StoredTensor], experts: Mapping[Numbers, ExpectedTensor]
) -> _Instead:
    """Cut each tensor that holds all experts of a layer into one tensor for each expert."""
    layers: dict[Numbers, list[ExpectedTensor]] = {}
    for numbers, expected in experts.items():
        if len(numbers) > 1:
            layers.setdefault(numbers[:1], []).append(expected)
    for numbers, tensor in held.items():
        whole = layers.get(numbers, [])
        if whole and _adds_up([tensor], whole):
            yield tensor.name, _cut(tensor, whole)


def _renamed_or_cut(
    names: _Names, role: TensorRole, held: Mapping[Numbers, StoredTensor]
) -> _Instead:
    """Rename each tensor by its role, or cut it if the class has several tensors for it."""
    fused = dict(_fused(names, role, held))
    own = names.missing.get(role, {})
    alias = names.missing.get(role._replace(part=_ALIASES.get(role.part, "")), {})
    for numbers, tensor in held.items():
        if numbers in fused:
            yield tensor.name, _cut(tensor, fused[numbers])
        elif one := own.get(numbers) or alias.get(numbers):
            shape = one.shape if _same(tensor.shape, one.shape) else tensor.shape
            yield tensor.name, (_named(tensor, one.name, shape),)


def _fused(
    names: _Names, role: TensorRole, held: Mapping[Numbers, StoredTensor]
) -> Iterator[tuple[Numbers, list[ExpectedTensor]]]:
    """Yield the class's tensors that one stored tensor fuses, if none of them is stored."""
    parts = _parts(role)
    missing = [names.missing[part] for part in parts if part in names.missing]
    if not parts or len(missing) < len(parts):
        return
    others = [names.stored[part] for part in parts if part != role and part in names.stored]
    for numbers, tensor in held.items():
        if any(numbers in one for one in others) or not all(numbers in one for one in missing):
            continue
        pieces = [one[numbers] for one in missing]
        if _adds_up([tensor], pieces):
            yield numbers, pieces


def _put_together(
    names: _Names, role: TensorRole, missing: Mapping[Numbers, ExpectedTensor]
) -> _Instead:
    """Join stored tensors into the one that the class fuses, unless that one is stored."""
    parts = [names.stored[part] for part in _parts(role) if part in names.stored]
    held = names.stored.get(role, {})
    for numbers, expected in missing.items() if len(parts) > 1 else ():
        if numbers in held:
            continue
        pieces = [part[numbers] for part in parts if numbers in part]
        if len(pieces) > 1 and _adds_up(pieces, [expected]):
            first, *rest = pieces
            yield first.name, (_named(first, expected.name, expected.shape),)
            yield from ((one.name, ()) for one in rest)


def _take_alike(case: Case, instead: dict[str, tuple[StoredTensor, ...]]) -> None:
    """Rename names that differ from renamed ones only in numbers in the same way.

    They have no role of a missing name: layers that predict further tokens, which no class
    expects.
    """
    for kind in case.strange_kinds:
        rest = [name for name in kind.names if name not in instead]
        example = next((name for name in kind.names if len(instead.get(name, ())) == 1), None)
        if not rest or example is None:
            continue
        new_name = instead[example][0].name
        if numbers_in(new_name) == numbers_in(example):
            new_kind = NameKind(name_pattern(new_name))
            for name in rest:
                other = new_kind.filled(numbers_in(name))
                if other not in case.shapes:
                    instead[name] = (renamed(case.strange_named[name], other),)


def _take_scales(case: Case, instead: dict[str, tuple[StoredTensor, ...]]) -> None:
    """Rename the scales of renamed weights."""
    scale_kinds = [kind for kind in case.strange_kinds if kind.parts[-1].startswith(f"{_WEIGHT}_")]
    stored = case.strange_named
    for kind in scale_kinds:
        last = kind.parts[-1].removeprefix(_WEIGHT)
        for name in kind.names:
            weights = instead.get(name[: -len(last)], ())
            if len(weights) == 1 and name not in instead:
                instead[name] = (renamed(stored[name], weights[0].name + last),)


def _parts(role: TensorRole) -> list[TensorRole]:
    """Return the roles of the tensors that a tensor of this role may fuse."""
    bare = role.part.removeprefix(_EXPERT)
    before = _EXPERT if role.part != bare else ""
    return [role._replace(part=f"{before}{part}") for part in _FUSED.get(bare, ())]


def _adds_up(stored: list[StoredTensor], expected: list[ExpectedTensor]) -> bool:
    """Whether both sides have equally many elements, or some size is unknown."""
    held = [one.elements for one in stored]
    return None in held or sum(one or 0 for one in held) == sum(one.elements for one in expected)


def _cut(tensor: StoredTensor, expected: list[ExpectedTensor]) -> tuple[StoredTensor, ...]:
    return tuple(shaped(tensor, one.shape, one.name) for one in expected)


def _named(tensor: StoredTensor, name: str, shape: tuple[int, ...] | None) -> StoredTensor:
    if shape is None or shape == tensor.shape:
        return renamed(tensor, name)
    return shaped(tensor, shape, name)


def _same(stored: tuple[int, ...] | None, expected: tuple[int, ...]) -> bool:
    """Whether shapes are equal except for the order of axes, or for a separate axis of heads."""
    if stored == expected:
        return True
    if stored is None or prod(stored) != prod(expected):
        return False
    return len(stored) != len(expected) or sorted(stored) == sorted(expected)

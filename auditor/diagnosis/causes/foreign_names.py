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
from auditor.diagnosis.changes import renamed, shaped, with_tensors
from auditor.diagnosis.name_kinds import NameKind, Numbers, name_pattern, numbers_in
from auditor.diagnosis.roles import TensorRole, roles_of
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
_BUFFERS = re.compile(r"(^|[._])(rope[._]freqs|rope_freqs|inv_freq|_extra_state)(\.|$|[._])")
_FUSED: Mapping[str, tuple[str, ...]] = {
    "qkv": ("q", "k", "v"),
    "cross-qkv": ("cross-q", "cross-k", "cross-v"),
    "gate-up": ("gate", "up"),
    "up": ("gate", "up"),  # of Megatron, where the activation has a gate
}
_STACKED = {"all-gates": "expert-gate", "all-ups": "expert-up", "all-downs": "expert-down"}
_EXPERT = "expert-"
_WEIGHT = "weight"
_AFTER_MLP = "post_feedforward_layernorm"  # then that after attention is not that before the MLP
_ALIASES = {"q-norm": "q-a-norm"}  # of DeepSeek, whose queries have no other norm
_LEAST = 0.5  # of the missing names that must get one


class _Names(NamedTuple):
    """Tensors by role and numbers, and the tensors that replace stored ones."""

    stored: dict[TensorRole, dict[Numbers, StoredTensor]]
    missing: dict[TensorRole, dict[Numbers, ExpectedTensor]]
    instead: dict[str, tuple[StoredTensor, ...]]


def undoings(case: Case) -> Iterator[Undoing]:
    """Every stored tensor under the name that the class has for its role."""
    if not (case.unexpected and case.missing):
        return
    source = _source(kind.pattern for kind in case.unexpected_kinds)
    if source is None:
        return
    names = _by_role(case)
    _join(names)
    given = len({one.name for made in names.instead.values() for one in made})
    if given < _LEAST * len(case.missing):
        return
    _take_alike(case, names.instead)
    _take_scales(case, names.instead)
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
        evidence=(f"by transformers' names {given:,} of them are expected",),
    )


def _source(patterns: Iterable[str]) -> str | None:
    """The software that uses names of these patterns; None: no known one does."""
    text = "\n".join(patterns)
    for source, pattern in _SOURCES.items():
        if re.search(pattern, text, re.MULTILINE):
            return source
    return None


def _by_role(case: Case) -> _Names:
    """Strange and missing names by role."""
    after_mlp = any(_AFTER_MLP in kind.pattern for kind in case.missing_kinds)
    spelt = _first_of_two_norms if after_mlp else str
    due = [roles_of(kind, spelt) for kind in case.missing_kinds]
    stacks = {role.stack for one in due for role, names in one.items() if names[0][0]}
    both = {"encoder", "decoder"} <= stacks

    def placed(role: TensorRole) -> TensorRole:
        """Of a model that has not both, a name may say either, or neither."""
        said = both or not role.stack or role.stack == "vision"
        return role if said else role._replace(stack="")

    names = _Names({}, {}, {})
    expected = case.lacking_named
    for roles in due:
        for role, several in roles.items():
            found = {numbers: expected[name] for numbers, name in several}
            lack = names.missing.setdefault(placed(role), found)
            if lack is not found:
                lack.update({**found, **lack})
    stored = case.strange_named
    for kind in case.strange_kinds:
        if _BUFFERS.search(kind.pattern):
            names.instead.update(dict.fromkeys(kind.names, ()))
            continue
        for role, several in roles_of(kind).items():
            here = {numbers: stored[name] for numbers, name in several}
            held = names.stored.setdefault(placed(role), here)
            if held is not here:
                held.update({**here, **held})
    return names


def _first_of_two_norms(name: str) -> str:
    return name.replace("post_attention_layernorm", "post_attention_norm")


def _join(names: _Names) -> None:
    """What is put instead of each stored tensor that has a role of missing ones."""
    for role, held in names.stored.items():
        if role.part in _STACKED:
            experts = names.missing.get(role._replace(part=_STACKED[role.part]), {})
            names.instead.update(_unstacked(held, experts))
        else:
            names.instead.update(_renamed_or_cut(names, role, held))
    for role, due in names.missing.items():
        names.instead.update(_put_together(names, role, due))


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
    """Rename each tensor by its role; cut it where the class has several tensors for it."""
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
    """The tensors of the class that one stored tensor fuses, where none of them is stored."""
    parts = _parts(role)
    due = [names.missing[part] for part in parts if part in names.missing]
    if not parts or len(due) < len(parts):
        return
    others = [names.stored[part] for part in parts if part != role and part in names.stored]
    for numbers, tensor in held.items():
        if any(numbers in one for one in others) or not all(numbers in one for one in due):
            continue
        pieces = [one[numbers] for one in due]
        if _adds_up([tensor], pieces):
            yield numbers, pieces


def _put_together(
    names: _Names, role: TensorRole, due: Mapping[Numbers, ExpectedTensor]
) -> _Instead:
    """Join stored tensors into the one that the class fuses, where that one is not stored."""
    parts = [names.stored[part] for part in _parts(role) if part in names.stored]
    held = names.stored.get(role, {})
    for numbers, expected in due.items() if len(parts) > 1 else ():
        if numbers in held:
            continue
        pieces = [part[numbers] for part in parts if numbers in part]
        if len(pieces) > 1 and _adds_up(pieces, [expected]):
            first, *rest = pieces
            yield first.name, (_named(first, expected.name, expected.shape),)
            yield from ((one.name, ()) for one in rest)


def _take_alike(case: Case, instead: dict[str, tuple[StoredTensor, ...]]) -> None:
    """Names that differ from renamed ones in numbers alone are renamed in the same way.

    None of them is missing: the layers that predict further tokens, which no class expects.
    """
    for kind in case.strange_kinds:
        rest = [name for name in kind.names if name not in instead]
        example = next((name for name in kind.names if len(instead.get(name, ())) == 1), None)
        if not rest or example is None:
            continue
        made = instead[example][0].name
        if numbers_in(made) == numbers_in(example):
            spelt = NameKind(name_pattern(made))
            for name in rest:
                other = spelt.filled(numbers_in(name))
                if other not in case.shapes:
                    instead[name] = (renamed(case.strange_named[name], other),)


def _take_scales(case: Case, instead: dict[str, tuple[StoredTensor, ...]]) -> None:
    """The scales of weights go where their weights go."""
    serving = [kind for kind in case.strange_kinds if kind.parts[-1].startswith(f"{_WEIGHT}_")]
    stored = case.strange_named
    for kind in serving:
        last = kind.parts[-1].removeprefix(_WEIGHT)
        for name in kind.names:
            made = instead.get(name[: -len(last)], ())
            if len(made) == 1 and name not in instead:
                instead[name] = (renamed(stored[name], made[0].name + last),)


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
    if shape is None or shape == tensor.shape:
        return renamed(tensor, name)
    return shaped(tensor, shape, name)


def _same(stored: tuple[int, ...] | None, expected: tuple[int, ...]) -> bool:
    """Whether shapes are the same but for the order of axes, or for heads that have their own."""
    if stored == expected:
        return True
    if stored is None or prod(stored) != prod(expected):
        return False
    return len(stored) != len(expected) or sorted(stored) == sorted(expected)

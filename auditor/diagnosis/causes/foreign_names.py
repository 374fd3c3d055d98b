"""foreign-names: the names of the tensors are those of another library, not of transformers.

To do: Convert the weights with the script of transformers for that library, or load them with the
software that wrote them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

from auditor.analytic import ExpectedTensor
from auditor.checkpoint.change import renamed, shaped
from auditor.diagnosis.case import Case, Proposal
from auditor.diagnosis.causes.fused_names import adds_up, exchanged
from auditor.names.kinds import NameKind, Numbers, name_pattern, numbers_in
from auditor.tensor_roles import TensorRole, expert_of, library_of, parts_of, roles_of
from auditor.tensors import StoredTensor

CAUSE = "foreign-names"

_BUFFERS = re.compile(r"(^|[._])(rope[._]freqs|rope_freqs|inv_freq|_extra_state)(\.|$|[._])")
# Beside this norm, the norm after attention does not precede the MLP.
_AFTER_MLP = "post_feedforward_layernorm"
_ALIASES = {"q-norm": "q-a-norm"}  # in DeepSeek, which has no other norm of queries
_LEAST = 0.5  # least share of the missing names that must be found


_Tensor = TypeVar("_Tensor", StoredTensor, ExpectedTensor)
_Replacements = dict[str, tuple[StoredTensor, ...]]  # replaced name -> the tensors instead
_ByRole = dict[TensorRole, dict[Numbers, _Tensor]]


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with tensors renamed to the class's tensors with the same roles."""
    if not (case.unexpected and case.missing):
        return
    unexpected = {kind.pattern for kind in case.unexpected.kinds}
    expected = {kind.pattern for kind in case.missing.kinds}
    if not case.unnamed:
        expected |= {kind.pattern for kind in case.stored.kinds} - unexpected
    source = library_of(unexpected, expected)
    if source is None:
        return
    replacements = _by_role(case)
    named = len({tensor.name for tensors in replacements.values() for tensor in tensors})
    if named < _LEAST * len(case.missing):
        return
    _take_related(case, replacements)
    count = len(replacements)
    example = next((pair for pair in replacements.items() if pair[1]), ("", ()))
    yield Proposal(
        cause=CAUSE,
        change=case.replacing(replacements),
        summary=f"{count:,} of {len(case.shapes):,} names are those of {source}, not of "
        f"transformers: {example[0]} should be {' and '.join(one.name for one in example[1])}",
        fix=f"convert the weights to transformers' names (its convert_*_to_hf script for {source}),"
        " or load them with the software that wrote them",
        evidence=(f"by transformers' names {named:,} of them are expected",),
    )


def _by_role(case: Case) -> _Replacements:
    """Return, by unexpected name, the missing tensors that have the same role.

    A stored tensor that contains several missing ones is split; several that make up a missing one
    are joined. The role of a tensor is its function, such as the query projection
    (`auditor/tensor_roles.py`).
    """
    stored, missing = _roles(case)
    strange = (kind for kind in case.unmatched.kinds if _BUFFERS.search(kind.pattern))
    replacements: _Replacements = {name: () for kind in strange for name in kind.names}
    for role, tensors in stored.items():
        own = missing.get(role, {})
        alias = missing.get(role._replace(part=_ALIASES.get(role.part, "")), {})
        parts_by_numbers = _held(role, missing)
        besides = [stored.get(part, {}) for part in parts_of(role) if part != role]
        for numbers, tensor in tensors.items():
            parts = parts_by_numbers.get(numbers, [])
            is_whole = not any(numbers in one for one in besides)
            if parts and is_whole and adds_up([tensor], parts):
                replacements |= exchanged([tensor], parts)
            elif one := own.get(numbers) or alias.get(numbers):
                replacements[tensor.name] = (_named(tensor, one),)
    for role, wholes in missing.items():
        for numbers, held in _held(role, stored).items():
            whole = wholes.get(numbers) if numbers not in stored.get(role, ()) else None
            if whole and adds_up(held, [whole]):
                replacements |= exchanged(held, [whole])
    return replacements


def _roles(case: Case) -> tuple[_ByRole[StoredTensor], _ByRole[ExpectedTensor]]:
    """Return the unexpected and the missing tensors, each as {role: {numbers: tensor}}."""
    after_mlp = any(_AFTER_MLP in kind.pattern for kind in case.missing.kinds)
    spelt = _first_of_two_norms if after_mlp else str
    missing = [roles_of(kind, spelt) for kind in case.missing.kinds]
    stacks = {role.stack for one in missing for role, names in one.items() if names[0][0]}
    both = {"encoder", "decoder"} <= stacks  # if one side has only one stack, the stack is ignored
    strange = (kind for kind in case.unmatched.kinds if not _BUFFERS.search(kind.pattern))
    return (
        _tensors(map(roles_of, strange), case.unmatched.by_name, both=both),
        _tensors(missing, case.missing.by_name, both=both),
    )


def _tensors(
    roles: Iterable[Mapping[TensorRole, list[tuple[Numbers, str]]]],
    tensors: Mapping[str, _Tensor],
    *,
    both: bool,
) -> _ByRole[_Tensor]:
    by_role: _ByRole[_Tensor] = {}
    for role, names in chain.from_iterable(one.items() for one in roles):
        placed = role if both or role.stack == "vision" else role._replace(stack="")
        by_numbers = by_role.setdefault(placed, {})
        for numbers, name in names:
            by_numbers.setdefault(numbers, tensors[name])
    return by_role


def _first_of_two_norms(name: str) -> str:
    return name.replace("post_attention_layernorm", "post_attention_norm")


def _held(role: TensorRole, tensors: _ByRole[_Tensor]) -> dict[Numbers, list[_Tensor]]:
    """Return {numbers in names: tensors that a fused tensor of this role contains}.

    These tensors are projections, or the experts of a layer.
    """
    if expert := expert_of(role):
        experts_by_layer: dict[Numbers, list[_Tensor]] = {}
        for numbers, tensor in tensors.get(expert, {}).items():
            experts_by_layer.setdefault(numbers[:1], []).append(tensor)
        return experts_by_layer
    parts = [tensors.get(part, {}) for part in parts_of(role)]
    complete = [key for key in (parts or [{}])[0] if all(key in one for one in parts)]
    return {numbers: [one[numbers] for one in parts] for numbers in complete}


def _take_related(case: Case, replacements: _Replacements) -> None:
    """Add renames of unexpected names without a role, by analogy with renamed names.

    Such a name differs from a renamed name only in numbers (layers that predict further tokens,
    which no class expects), or is the name of a renamed weight's scale.
    """
    for kind in case.unmatched.kinds:
        example = next((name for name in kind.names if len(replacements.get(name, ())) == 1), None)
        new_name = replacements[example][0].name if example else ""
        new_kind = NameKind(name_pattern(new_name))
        is_alike = example is not None and numbers_in(new_name) == numbers_in(example)
        suffix = kind.parts[-1].removeprefix("weight")
        is_scale = kind.parts[-1].startswith("weight_")
        for name in kind.names:
            if name in replacements:
                continue
            weight = replacements.get(name.removesuffix(suffix), ()) if is_scale else ()
            other = new_kind.filled(numbers_in(name)) if is_alike else ""
            if len(weight) == 1:
                other = weight[0].name + suffix
            elif other in case.shapes:
                continue
            if other:
                replacements[name] = (renamed(case.unmatched.by_name[name], other),)


def _named(tensor: StoredTensor, expected: ExpectedTensor) -> StoredTensor:
    """Return the tensor under the expected name, in the expected shape if only its axes differ.

    The axes may be in another order, and the heads may have a separate axis.
    """
    shape, other = tensor.shape or (), expected.shape
    has_these_axes = len(shape) != len(other) or sorted(shape) == sorted(other)
    if has_these_axes and tensor.elements == expected.elements:
        return shaped(tensor, other, expected.name)
    return renamed(tensor, expected.name)

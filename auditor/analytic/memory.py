"""What a class of a closed form has in memory: what loading makes of the tensors on disk."""

from collections.abc import Iterator

from auditor.analytic.conversions import Conversion, ConversionError, converted
from auditor.analytic.expectation import Expectation, ExpectedTensor, Role
from auditor.analytic.loading import Loading, Memory
from auditor.analytic.rules import Rule, rewritten

_Shape = tuple[int, ...]
_Collected = dict[str, tuple[Rule, dict[str, list[_Shape]]]]  # by the first target's name


def memory(expectation: Expectation) -> Memory:
    """As the oracle has it from the library itself; else as the rules imply it."""
    loading = expectation.loading
    if loading.memory is not None:
        return loading.memory
    tied = [tensor for tensor in expectation.tensors if tensor.role is Role.TIED]
    return Memory(
        shapes=dict(_shapes(expectation.tensors, loading)),
        ties=tuple((_name(one.name, loading), _name(one.tied_to or "", loading)) for one in tied),
    )


def _shapes(tensors: tuple[ExpectedTensor, ...], loading: Loading) -> Iterator[tuple[str, _Shape]]:
    """What stands for itself; then what several tensors on disk make up, or parts of one."""
    collected: _Collected = {}
    for name, shape, _, role, _ in tensors:
        if role.optional and not (role is Role.LEGACY and loading.takes(name)):
            continue
        renamed = _name(name, loading)
        for rule in loading.converters:
            found = rewritten(rule, renamed)
            if found is not None:
                _, shapes = collected.setdefault(found.name, (rule, {}))
                shapes.setdefault(rule.sources[found.source], []).append(shape)
                break
        else:
            yield renamed, shape
    for first, (rule, shapes) in collected.items():
        try:
            yield from converted(Conversion(rule, first, {}), shapes)
        except ConversionError:
            continue  # no checkpoint of this config can be loaded


def _name(name: str, loading: Loading) -> str:
    return loading.of_old(loading.renamed(name))[0]

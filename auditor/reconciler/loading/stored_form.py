"""The form of a class's stored tensors: as save_pretrained writes them, or as they are in memory.

Loading converts tensors in the on-disk form, and loads those in the in-memory form unchanged.
In memory, one tensor may stack all experts of a layer, and a projection may be split into three. So
each group of tensors that one conversion makes is expected in the form that the file contains.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType

from msgspec.structs import replace

from auditor.analytic import Expectation, ExpectedTensor, ModuleFormula, Role, Written
from auditor.analytic.conversions import ConvertedGroup, converted_groups, tensors_before_conversion
from auditor.analytic.loading import forms_with_prefix
from auditor.names.parts import modules_above
from auditor.reconciler.matching import Places, places
from auditor.tensors import Depth


def expected_as_stored(
    expectation: Expectation,
    stored: Iterable[str],
    depth: Depth | None = None,
    where: Places | None = None,
) -> Expectation:
    """Return the expectation with in-memory tensors for the groups that are stored in that form.

    Return `expectation` itself if there is no such group. `where` are the expectation's places, if
    they are looked up again later. The result has the modules that `depth`
    lists, and those one level deeper; all modules if `depth` is None.
    """
    loading = expectation.loading
    if not loading.converters:
        return expectation
    expected_names = {tensor.name for tensor in expectation.tensors}
    names = frozenset(stored)
    others = names - expected_names
    if not others:
        return expectation
    where = where or places(expectation, names)
    found = where.of(others)
    unmatched = [place.name for place in found if place.expected is None]
    converted = frozenset(chain.from_iterable(where.loading.converted(unmatched)))
    forms = forms_with_prefix(converted, expectation.prefix).values()
    in_memory = frozenset(chain.from_iterable(forms))
    if not in_memory:
        return expectation
    matching = names | {place.expected.name for place in found if place.expected is not None}
    reformed = tuple(
        group
        for group in converted_groups(tensors_before_conversion(expectation), loading).values()
        if not in_memory.isdisjoint(group.in_memory)
        and matching.isdisjoint(tensor.name for tensor in group.on_disk)
    )
    return _in_memory(expectation, reformed, depth) if reformed else expectation


def _in_memory(
    expectation: Expectation, reformed: tuple[ConvertedGroup, ...], depth: Depth | None
) -> Expectation:
    """Return the expectation with the in-memory tensors of each group instead of its on-disk ones.

    The in-memory tensors are listed in the place of the group's first on-disk tensor.
    """
    first = {group.on_disk[0].name: group for group in reformed}
    removed = {tensor.name: tensor for group in reformed for tensor in group.on_disk}
    tensors: list[ExpectedTensor] = []
    for tensor in expectation.tensors:
        if tensor.name in first:
            tensors += first[tensor.name].tensors
        elif tensor.name not in removed:
            tensors.append(tensor)
    added = [tensor for group in reformed for tensor in group.tensors]
    further = None if depth is None else depth.one_deeper()
    modules_before = expectation.modules_to(further)
    modules = {
        prefix: formula
        for prefix, formula in _modules(modules_before, tensors, removed.values(), added)
        if further is None or further.lists(prefix)
    }
    listed = Written(tensors=tuple(tensors), modules=MappingProxyType(modules))
    return replace(expectation, listed=listed)


def _modules(
    modules_before: Mapping[str, ModuleFormula],
    tensors: Iterable[ExpectedTensor],
    removed: Iterable[ExpectedTensor],
    added: Iterable[ExpectedTensor],
) -> Iterator[tuple[str, ModuleFormula]]:
    """Yield the modules that are not empty; one with an unchanged count keeps its formula."""
    change: Counter[str] = Counter()
    for sign, changed in ((-1, removed), (1, added)):
        for tensor in changed:
            count = tensor.elements if tensor.role is Role.PARAMETER else 0
            change.update(dict.fromkeys(modules_above(tensor.name), sign * count))
    nonempty = {
        prefix for one in tensors if not one.role.optional for prefix in modules_above(one.name)
    }
    for prefix in dict.fromkeys((*modules_before, *change)):
        if prefix not in nonempty and prefix in change:
            continue
        formula = modules_before.get(prefix, ModuleFormula(0, ""))
        count = formula.parameters + change[prefix]
        is_unchanged = prefix in modules_before and not change[prefix]
        yield prefix, formula if is_unchanged else ModuleFormula(count, str(count))

"""The causes in the order in which they are tested, and their descriptions.

The docstring of a module of `causes/` begins with `CAUSE: DESCRIPTION.`. A module with several
causes has a paragraph for each, or begins with `ONE and OTHER: ...`. The paragraphs that follow
describe the causes directly before them; the remedy is the paragraph `To do:`.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping

from auditor.diagnosis.case import Case, Proposal
from auditor.diagnosis.causes import (
    adapter_base,
    broken_files,
    config_field,
    custom_code,
    dtype_doubled,
    foreign_names,
    fused_names,
    gguf_files,
    half_resized,
    head_not_saved,
    layers_renumbered,
    lost_files,
    lost_part,
    moved_names,
    other_architecture,
    other_class,
    other_size,
    parallel_rank,
    quantization,
    several_saves,
    transposed,
    uneven_layers,
    unmerged_adapter,
    unsharded_save,
)

Cause = Callable[[Case], Iterator[Proposal]]

# Causes in the files themselves; tested even without a config.
OF_FILES: tuple[Cause, ...] = (
    broken_files.pointers,
    broken_files.truncated,
    several_saves.two_saves,
    several_saves.stored_twice,
    several_saves.stale_index,
    lost_files.partial_upload,
)

# Causes in GGUF files, which have metadata instead of a config.
OF_GGUF: tuple[Cause, ...] = (
    broken_files.pointers,
    broken_files.truncated,
    lost_files.partial_upload,
    gguf_files.metadata,
    gguf_files.refused,
)

# Causes of files with next to nothing of the model, for which no names or values are tried.
OF_REMNANTS: tuple[Cause, ...] = (*OF_FILES, lost_files.empty_file, unsharded_save.proposals)

# The causes with the smallest changes come first: files, names, shapes, a field, a class. If two
# causes explain the same findings, the earlier cause is reported.
CAUSES: tuple[Cause, ...] = (
    *OF_FILES,
    lost_files.empty_file,
    dtype_doubled.proposals,
    unmerged_adapter.proposals,
    adapter_base.proposals,
    moved_names.proposals,
    layers_renumbered.proposals,
    head_not_saved.proposals,
    config_field.of_adapter,
    other_size.proposals,
    transposed.proposals,
    fused_names.proposals,
    foreign_names.proposals,
    unsharded_save.proposals,
    parallel_rank.proposals,
    half_resized.proposals,
    config_field.proposals,
    moved_names.of_other_modules,
    quantization.other_settings,
    quantization.declared_or_not,
    uneven_layers.proposals,
    lost_part.proposals,
    other_class.proposals,
    head_not_saved.of_classifier,
    other_architecture.proposals,
)

# Groups of causes whose changes are equally likely if they change equally many fields. If one cause
# explains the findings, the others of its group are tested too. So are the further proposals of the
# cause itself if they have `either`. Each that explains the same findings is reported with it.
RIVALS: tuple[frozenset[Cause], ...] = (
    frozenset(
        {
            head_not_saved.proposals,
            other_size.proposals,
            half_resized.proposals,
            config_field.proposals,
            quantization.other_settings,
            quantization.declared_or_not,
        }
    ),
    frozenset({parallel_rank.proposals, lost_part.proposals, head_not_saved.of_classifier}),
)

_NAME = r"[a-z]+(?:-[a-z]+)*"
_NAMES = re.compile(rf"{_NAME}(?:, {_NAME})*(?: and {_NAME})?(?=: )")


def described_causes() -> Mapping[str, str]:
    """Return the description of each cause, in the order in which causes are tested."""
    tested = dict.fromkeys(sys.modules[cause.__module__] for cause in (*CAUSES, *OF_GGUF))
    modules = (*tested, custom_code)
    return {name: text for module in modules for name, text in _described(module.__doc__ or "")}


def _described(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield (cause, description) of one module."""
    heads, rest = list[str](), list[str]()
    for at, paragraph in enumerate(docstring.split("\n\n")):
        is_head = at == 0 or _names(paragraph) != ""
        if is_head and rest:
            yield from _of_heads(heads, rest)
            heads, rest = [], []
        (heads if is_head else rest).append(paragraph)
    yield from _of_heads(heads, rest)


def _of_heads(heads: list[str], rest: list[str]) -> Iterator[tuple[str, str]]:
    for head in heads:
        names = _names(head)
        meaning = head[len(names) + 2 :]
        text = "\n\n".join((f"{meaning[:1].upper()}{meaning[1:]}", *rest))
        for name in re.split(", | and ", names) if names else ():
            yield name, text


def _names(paragraph: str) -> str:
    match = _NAMES.match(paragraph)
    return match[0] if match else ""

"""One row for each load: the library's word on it, ours, and where they differ."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_configs import config_of

from auditor.analytic import Expectation, Role, catalogue
from auditor.reconciler.reconcile import Family
from parity_cases.configs import expectation, small_config
from parity_cases.library import names, theirs, unexpected_patterns
from parity_cases.prediction import findings, predicted
from parity_cases.spoiling import Stored, spoilt, written
from parity_cases.words import compared


class Row(NamedTuple):
    model_type: str
    saved: str
    loaded: str
    case: str
    fused: str  # yes: the class has tensors in memory that are several on disk, or parts of one
    identical: str  # yes, no; finer: the same tensors, and we say more exactly what is wrong
    only_ours: int  # names that only we report
    only_theirs: int  # names that only the library reports
    reason: str  # of what is not identical


# Where the two differ for good: model type, what differs, and why. All else is unexplained.
KNOWN = (
    (
        "marian",
        r"(embed_tokens|shared|lm_head)\.weight",
        "the config ties embeddings of two sizes: the library compares each with its own",
    ),
    (
        "swin",
        r"swin\.layernorm\.",
        "SwinBackbone does not read its last norm and is silent where it is missing; we name it",
    ),
)
UNEXPLAINED = "unexplained: "


def rows_of(model_type: str, number: int = 0) -> list[Row]:
    """Every load of one small config of the model type; another number is another config."""
    return list(_rows(model_type, number))


def _rows(model_type: str, number: int) -> Iterator[Row]:
    values = {**small_config(model_type, number), "model_type": model_type}
    for tied in (True, False):
        yield from _of_config(model_type, values | {"tie_word_embeddings": tied}, tied=tied)


def _of_config(model_type: str, values: dict[str, Any], *, tied: bool) -> Iterator[Row]:
    classes = catalogue.siblings(model_type)
    config = config_of(**values)
    siblings = tuple(catalogue.sibling(config, name) for name in classes)
    expected = {name: expectation(model_type, values, name) for name in classes}
    if not tied and not any(_tied(model_type, values, name) for name in classes):
        return  # the same once more
    for saved in classes:
        whole = written(expected[saved])
        for loaded in classes:
            family = Family(declared=expected[saved], siblings=lambda: siblings)
            case = "self" if saved == loaded else "cross"
            checkpoints = [(case if tied else f"{case}, untied", whole)]
            if tied:
                checkpoints += _layouts(saved, values, whole, case)
            if saved == loaded and tied:
                checkpoints += spoilt(whole, expected[saved])
                checkpoints += _ignored(loaded, whole, expected[saved])
            fused = "yes" if names(loaded, values).converts else "no"
            for label, checkpoint in checkpoints:
                compared = _compared(loaded, values, checkpoint, expected[loaded], family)
                yield _explained(Row(model_type, saved, loaded, label, fused, *compared))


def _tied(model_type: str, values: dict[str, Any], name: str) -> bool:
    tied = expectation(model_type, values | {"tie_word_embeddings": True}, name)
    return any(tensor.role is Role.TIED for tensor in tied.tensors)


def _layouts(
    target: str, values: dict[str, Any], whole: Stored, case: str
) -> Iterator[tuple[str, Stored]]:
    """The same checkpoint as version 4 wrote it, and under the names that it has in memory."""
    naming = names(target, values)
    seen = [whole]
    for layout, stored in (
        ("names of version 4", naming.of_old(whole)),
        ("names in memory", naming.as_in_memory(whole)),
        ("names in version 4's memory", naming.as_in_memory_of_old(whole)),
    ):
        if stored not in seen:
            seen.append(stored)
            yield f"{case}, {layout}", stored


def _ignored(target: str, whole: Stored, expectation: Expectation) -> Iterator[tuple[str, Stored]]:
    """With every name that the class itself says loading should be silent about."""
    patterns = unexpected_patterns(target)
    bare = [re.sub(r"[\^$\\]|\.\*", "", each.replace(r"\d+", "0")) for each in patterns]
    prefix = f"{expectation.prefix}." if expectation.prefix else ""
    if bare:
        yield (
            "names that it ignores",
            whole
            | {
                f"{head}{name}{tail}": (2,)
                for name in bare
                for head in ("", prefix, "other.")
                for tail in ("", ".weight")
            },
        )


def _compared(loaded, values, checkpoint, expected, family):
    naming = names(loaded, values)
    ours = predicted(findings(checkpoint, expected, family), naming.in_memory)
    return compared(ours, theirs(loaded, values, checkpoint), fused=naming.converts)


def _explained(row: Row) -> Row:
    if row.identical != "no":
        return row
    for model_type, differs, why in KNOWN:
        if row.model_type == model_type and re.search(differs, row.reason):
            return row._replace(reason=f"{why} ({row.reason})")
    return row._replace(reason=f"{UNEXPLAINED}{row.reason}")

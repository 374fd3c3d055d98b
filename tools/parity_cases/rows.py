"""One row for each load: the library's word on it, ours, and where they differ."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from parity_cases.folders import audited, write
from parity_cases.library import theirs
from parity_cases.loads import Load, of_closed_form, of_large, of_library, unlike
from parity_cases.words import Raised, alarms, compared, finer, ours


class Row(NamedTuple):
    """One load of one checkpoint, by the library and by us."""

    source: str  # who says what is expected: closed form, generated form, oracle
    model_type: str
    saved: str
    loaded: str
    case: str
    tensors: int
    same: str  # yes, no: our load_report is the library's; silent: there is none
    finer: str  # yes: our findings name what the report has as another fault
    only_ours: int  # names that only we report
    only_theirs: int  # names that only the library reports
    alarms: str  # the kinds of our findings that alarm, where the library says nothing at all
    reason: str  # of what is not the same


class LeftOut(NamedTuple):
    """A model type of which nothing was loaded."""

    model_type: str
    reason: str


class Work(NamedTuple):
    """Some model types of one kind."""

    kind: str  # closed, generated, oracle, large
    model_types: tuple[str, ...]
    number: int  # of the configs that are drawn
    home: Path  # of the Hugging Face cache, where the oracle keeps its answers
    classes: int | None = None  # of each type, the first of them; None: all


_KINDS: dict[str, Callable[[str, int], Iterable[Load]]] = {
    "closed": of_closed_form,
    "generated": lambda model_type, number: of_library(model_type, number, generated=True),
    "oracle": of_library,
    "large": lambda model_type, _number: of_large(model_type),
}

# Where the two differ for good: model type, what differs, and why. All else is unexplained.
KNOWN = (
    (
        "marian",
        r"(embed_tokens|shared|lm_head)\.weight",
        "the config ties embeddings of two sizes: the library compares each with its own",
    ),
    (
        "qwen2_5_omni",
        r"the library raises OSError",
        "beside the weights it loads spk_dict.pt, which a folder of headers does not have",
    ),
)
UNEXPLAINED = "unexplained: "


def rows_of(work: Work) -> tuple[list[Row], list[LeftOut]]:
    """Every load of the work, and the types that have none."""
    loads: list[Load] = []
    left_out: list[LeftOut] = []
    for model_type in work.model_types:
        try:
            some = unlike(_KINDS[work.kind](model_type, work.number))
            loads += _of_first(work.classes, list(some))
        except Exception as error:  # noqa: BLE001 - a config or a class can raise anything
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            left_out.append(LeftOut(model_type, reason))
    with TemporaryDirectory(prefix="parity") as place:
        folders = [write(load, Path(place) / str(number)) for number, load in enumerate(loads)]
        asked = [
            (folder, None if load.saved == load.loaded else load.loaded)
            for load, folder in zip(loads, folders, strict=True)
        ]
        outcomes = audited(asked, work.home, work.kind)
        rows = [
            _row(load, folder, outcome)
            for load, folder, outcome in zip(loads, folders, outcomes, strict=True)
        ]
    return rows, left_out


def _of_first(classes: int | None, loads: list[Load]) -> list[Load]:
    chosen = frozenset([*dict.fromkeys(load.saved for load in loads)][:classes])
    return [load for load in loads if {load.saved, load.loaded} <= chosen]


def _row(load: Load, folder: Path, outcome: dict[str, Any]) -> Row:
    word = theirs(folder, load.loaded, load.stored, max(load.elements, load.model))
    found = compared(ours(outcome), word)
    return Row(
        source=load.source,
        model_type=load.model_type,
        saved=load.saved,
        loaded=load.loaded,
        case=load.case,
        tensors=len(load.stored),
        same=found.same,
        finer="yes" if finer(outcome) else "",
        only_ours=found.only_ours,
        only_theirs=found.only_theirs,
        alarms="" if isinstance(word, Raised) or any(word) else alarms(outcome),
        reason=_explained(load.model_type, found.reason),
    )


def _explained(model_type: str, reason: str) -> str:
    if not reason:
        return ""
    for known, differs, why in KNOWN:
        if model_type == known and re.search(differs, reason):
            return f"{why} ({reason})"
    return f"{UNEXPLAINED}{reason}"

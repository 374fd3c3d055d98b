"""Rules that detect a config and weights of different models by names, sizes and dtypes."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from auditor.analytic import Config, Expectation
from auditor.checkpoint.snapshot import RepoFile
from auditor.findings import BadConfig, BadSize, Finding, WrongDtype, by_name
from auditor.reconciler.index import sums
from auditor.reconciler.matching import Fate
from auditor.reconciler.reconcile import Reconciled
from auditor.tensors import StoredTensor, is_float

_DRAFTING = ("mtp_num_hidden_layers", "num_nextn_predict_layers")  # keys: number of drafting layers


def drafting_notes(config: Config, tensors: Sequence[StoredTensor]) -> Iterator[str]:
    """Yield a note about layers for drafting tokens that the config declares and no file stores.

    This is not a fault: transformers does not save them, and leaves the count in the config.
    """
    text = config.values.get("text_config")
    for path, values in (("", config.values), ("text_config.", text)):
        if not isinstance(values, Mapping) or not tensors:
            continue
        after = f"layers.{values.get('num_hidden_layers')}."  # as DeepSeek numbers them
        for key in _DRAFTING:
            count = values.get(key)
            if type(count) is not int or count <= 0:
                continue
            if not any("mtp" in tensor[0] or after in tensor[0] for tensor in reversed(tensors)):
                yield f"{path}{key} is {count}, and no layer for drafting tokens is stored"


# Extra tensors are negligible up to 1/100 of the parameters: rotary frequencies take less, the
# masks of GPT-2 take more (1/10).
_NEXT_TO_NOTHING = 100


OTHER_NAMES = "most likely the config's model, under other names"


def other_names_note(
    reconciled: Reconciled, expectation: Expectation, total: float | None
) -> str | None:
    """Return a note if the weights may be the config's model under other names, judging by sizes.

    The unexpected tensors must have every missing shape and few further elements (such as masks).
    If some shards are missing, the index's `total` must be the size of the missing tensors.
    """
    unexpected = [item.tensor for item in reconciled.unexpected if item.fate == Fate.UNEXPECTED]
    missing = [item.tensor for item in reconciled.absent if item.fate == Fate.MISSING]
    if not missing or len(unexpected) < len(missing):
        return None
    if all(tensor.shape is not None for tensor in unexpected):
        lacking = Counter(one.shape for one in missing)
        lacking -= Counter(one.shape for one in unexpected if one.shape is not None)
        more = sum(one.elements or 0 for one in unexpected) - sum(one.elements for one in missing)
        is_plausible = not lacking and more * _NEXT_TO_NOTHING <= expectation.parameters
        how = "have the shapes of"
    else:
        sizes = {expectation.parameters * bits // 8 for bits in sums.WIDTHS.values()}
        is_plausible = len(unexpected) == len(missing) and total in sizes
        how = "take, by total_size, as many bytes as"
    if not is_plausible:
        return None
    what = f"the {len(unexpected):,} tensors that nothing expects {how} the {len(missing):,} that"
    return f"{what} are missing: {OTHER_NAMES}"


def other_model_rule(
    reconciled: Reconciled, expectation: Expectation, file: str, total: float | None = None
) -> Iterator[Finding]:
    """Report that the config `file` and the weights are of different models: few names are in both.

    A name that ends like an expected name belongs to the model, whatever its start; so do tensors
    with exactly the missing sizes.
    """
    unexpected = [
        item.tensor.name for item in reconciled.unexpected if item.fate == Fate.UNEXPECTED
    ]
    stored = len(reconciled.counted)
    if 2 * len(unexpected) <= stored or other_names_note(reconciled, expectation, total):
        return
    learned = [item for item in reconciled.absent if item.tensor.role.learned]
    missing = sum(item.fate == Fate.MISSING for item in learned)
    needed = expectation.listed.learned
    if 2 * missing <= needed:
        return
    ends = {sums.last_two_parts(tensor.name) for tensor in expectation.tensors}
    foreign = sum(sums.last_two_parts(name) not in ends for name in unexpected)
    if 2 * foreign <= stored:
        return
    reason = (
        f"{file} describes another model than the weights: {len(unexpected):,} of their {stored:,} "
        f"names are unknown to {expectation.target} and related classes, and "
        f"{missing:,} of its {needed:,} tensors are not stored"
    )
    yield BadConfig(file=file, reason=reason)


_LONE_FILES = ("model.safetensors", "pytorch_model.bin")
HEADER_BYTES = 1024  # the most for one tensor; safetensors needs 110 to 140, zip 350


def listed_size_rule(
    files: Sequence[RepoFile], expectation: Expectation, declared: str | None
) -> Iterator[Finding]:
    """Check that a single weight file that was not opened is large enough for the declared tensors.

    The file may contain more, for instance buffers.
    """
    parameters = expectation.parameters
    most = HEADER_BYTES * len(expectation.tensors)
    for file in files:
        if file.name not in _LONE_FILES or file.size is None or declared not in sums.WIDTHS:
            continue
        over = file.size - bytes_in(parameters, declared)
        if over >= 0:
            continue
        size = f"{file.name} has {file.size:,} bytes"
        if fitting := fitting_dtype(file.size, parameters, most, sums.WIDTHS):
            around = file.size - bytes_in(parameters, fitting)
            reason = (
                f"{size}: {sums.WIDTHS[fitting] // 8} for each of {parameters:,} parameters and "
                f"{around:,} around them; the config declares {declared}"
            )
            yield WrongDtype(tensors=(), declared=declared, reason=reason)
        else:
            takes = f"{parameters:,} parameters take in {declared}: {over:+,}"
            reason = f"{size}, fewer than the {file.size - over:,} that {takes}"
            yield BadSize(file=file.name, reason=reason)


def bytes_in(parameters: int, dtype: str) -> int:
    return parameters * sums.WIDTHS[dtype] // 8


def fitting_dtype(size: int, parameters: int, most: int, dtypes: Iterable[str]) -> str | None:
    """Return the dtype in which parameters leave up to `most` bytes of a file for its header."""
    fitting = (dtype for dtype in dtypes if 0 <= size - bytes_in(parameters, dtype) <= most)
    return next(fitting, None)


def dtype_rule(
    reconciled: Reconciled,
    declared: str | None,
    dtypes: frozenset[str],
    wide_names: re.Pattern[str],
    *,
    by: str = "the config",
) -> Iterator[Finding]:
    """Check that parameters are stored in the declared dtype, and never as integers.

    `dtypes` are all stored dtypes; a variant may declare another dtype than the config. Parameters
    whose names match `wide_names` may be stored as F32 if the config declares 16 bits.
    """
    wrong: dict[str, list[StoredTensor]] = {
        dtype: []
        for dtype in sorted(dtypes)
        if dtype != declared and (declared is not None or not is_float(dtype))
    }
    if not wrong:
        return
    learned = (hit.stored for hit in reconciled.answered if hit.expected.role.learned)
    wide = "F32" if declared in {"BF16", "F16"} else None
    packed = reconciled.packed  # packed tensors have the dtypes of their layout
    scaled = set(map(id, reconciled.scaled))
    for tensor in (*reconciled.plain.values(), *learned):
        if tensor.dtype not in wrong or id(tensor) in scaled:
            continue
        if tensor.dtype == wide and wide_names.search(tensor.name):
            continue
        if not packed or (tensor.name, tensor.file) not in packed:
            wrong[tensor.dtype].append(tensor)
    for dtype, tensors in wrong.items():
        if not tensors:
            continue
        yield WrongDtype(
            tensors=by_name(tensors),
            declared=declared or "a float",
            reason=f"stored as {dtype}, {by} declares {declared or 'no integer dtype'}",
        )

"""The sentence that begins a comparison: what the second checkpoint, B, is of the first, A.

It states what the evidence shows. Equal names and shapes show neither that the numbers are those
of A nor that they are others, so that the sentence then says what was not compared.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from auditor.comparing.records import Comparison, ConfigChange, Lost, NumbersCompared
from auditor.messages import named, quoted
from auditor.names.folding import fold
from auditor.names.parts import module_kind

_FEW = 0.5  # below this share of common names or shapes, the models are not versions of each other
_SHOWN = 3  # kinds, modules or keys that the sentence names
# Relative distance of numbers below which they come from one model: it is 1.4 for the numbers of
# two models with equal norms, and 0.1 for a weight and its rounding to four bits.
_NEAR = 0.5
# The largest rank, as a share of the sample's, that an adapter would have.
_LOW_RANK = 0.25
# Weights that adapters change: not embeddings, heads and routers.
_ADAPTED = re.compile(r"^(?!.*(embed|wte|wpe|head|norm|router|gate\.weight)).*\.weight$")
_QUANTIZATION = re.compile(r"(text_config\.)?(quantization|compression)(_config)?(\.|$)")
_SIZES = ("hidden_size", "num_hidden_layers", "intermediate_size", "d_model", "n_embd", "n_layer")


def summary_of(comparison: Comparison) -> str:
    """Return the sentence, with a full stop."""
    first, second = comparison.types
    common: int = comparison.tensors[0] - len(comparison.removed)
    fewer = min(comparison.tensors)
    if common < _FEW * fewer:
        shared = f"{common:,} of its {comparison.tensors[1]:,} tensors have names of A"
        if first and second and first != second:
            return f"B is another architecture: {named(second)}, A is {named(first)}; {shared}."
        for key in comparison.keys:
            if key.key == "peft_type" and key.before is None:
                kind = named(str(key.after))
                return f"B is an adapter ({kind}), not a model: audit B compares it with its base."
        return f"Cannot tell what B is of A: {shared}."
    if common and len(comparison.reshaped) >= _FEW * common and first == second:
        return f"{_other_size(comparison)}."
    clauses = [_core(comparison, common), *_clauses(comparison)]
    return f"{'; '.join(clauses)}."


def _other_size(comparison: Comparison) -> str:
    keys = {key.key.rpartition(".")[2]: key for key in comparison.keys}
    changes = [
        f"{name} is {keys[name].after}, A has {keys[name].before}"
        for name in _SIZES
        if name in keys and type(keys[name].before) is type(keys[name].after) is int
    ]
    kind = f"the type {named(comparison.types[0])}" if comparison.types[0] else "these names"
    count = f"{len(comparison.reshaped):,} tensors have other shapes"
    return "; ".join([f"B is another size of {kind}: {count}", *changes[:_SHOWN]])


# --- the tensors that both have -----------------------------------------------------------------


def _core(comparison: Comparison, common: int) -> str:
    """Return the first clause: the form and the numbers of the tensors that both have."""
    layouts, stored = comparison.layouts, comparison.bytes
    if layouts[0] != layouts[1]:
        before, after = layouts
        form = f"in {after}" if after else "without packing"
        return _converted(comparison, f"{form}{f' (A is in {before})' if before else ''}")
    if len(comparison.retyped) >= _FEW * common and comparison.retyped:
        [(types, _), *_] = Counter(
            (one.before, one.after) for one in comparison.retyped
        ).most_common()
        return _converted(comparison, f"in {types[1]} (A is in {types[0]})")
    if stored.equal or stored.other:
        return _by_bytes(comparison)
    if stored.other_files:
        files = _named(stored.other_files)
        if stored.same_headers:
            return f"B has the tensors of A with other numbers: {files} has another sha256"
        return f"B has tensors of A; {files} has another sha256: numbers or metadata, cannot tell"
    which = "tensors of A" if _has_others(comparison) else "the same tensors as A"
    return f"B has {which}, by name, shape and dtype; their numbers were not compared"


def _has_others(comparison: Comparison) -> bool:
    """Return whether some tensors are on one side only, or differ in shape or dtype."""
    names = (comparison.removed, comparison.added, comparison.reshaped, comparison.retyped)
    return any(names)


def _by_bytes(comparison: Comparison) -> str:
    stored = comparison.bytes
    total = len(stored.equal) + len(stored.other)
    if stored.other:
        return _changed(comparison, total)
    if total < comparison.stored:
        return f"B has tensors of A: the same bytes in {total:,} of {comparison.stored:,}"
    others = (comparison.keys, comparison.renamed, comparison.added, comparison.not_compared)
    is_same = not any(others)
    subject = "B is A" if is_same else "B has the tensors of A"
    return f"{subject}: the same bytes in all {total:,}"


def _changed(comparison: Comparison, total: int) -> str:
    names = comparison.bytes.other
    count = f"other numbers in {len(names):,} of {total:,}"
    kinds = _kinds(names)
    where = f"all in {_listed(kinds)}" if len(kinds) <= _SHOWN + 1 else f"in {_listed(kinds)}"
    rank = _low_rank(comparison)
    if rank is None:
        far = f"; {_distance(comparison.numbers)}" if comparison.numbers else ""
        which = "tensors of A" if _has_others(comparison) else "the same tensors as A"
        return f"B has {which}, {count}, {where}{far}"
    measured = f"the differences have rank {rank} at most in the samples"
    return f"B is A merged with a LoRA: {count}, {where}; {measured}"


def _low_rank(comparison: Comparison) -> int | None:
    """Return the largest rank of the differences if all are linear weights of low rank."""
    by_name = {one.name: one for one in comparison.numbers}
    largest = 0
    for name in comparison.bytes.other:
        one = by_name.get(name)
        if one is None or one.rank is None or one.full_rank is None:
            return None
        if not _ADAPTED.search(name) or one.rank > _LOW_RANK * one.full_rank:
            return None
        largest = max(largest, one.rank)
    return largest if largest > 1 else None  # a single direction may have been removed


def _converted(comparison: Comparison, form: str) -> str:
    """Return the clause for a checkpoint in another dtype or packing."""
    stored, numbers = comparison.bytes, comparison.numbers
    near = [one for one in numbers if one.relative < _NEAR]
    if numbers and len(near) == len(numbers):
        return f"B is A {form}: {_distance(numbers)}"
    if numbers:
        far = _listed(_kinds([one.name for one in numbers if one.relative >= _NEAR]))
        others = f"{len(numbers) - len(near):,} of {len(numbers):,} sampled tensors"
        return f"B has the tensors of A {form}, and other numbers in {others}: {far}"
    kept = f"; {len(stored.equal):,} that are stored alike have the same bytes"
    other = f"; {len(stored.other):,} that are stored alike have other bytes"
    same = f"{kept * bool(stored.equal)}{other * bool(stored.other)}"
    return f"B has the tensors of A {form}; the converted numbers were not compared{same}"


def _distance(numbers: Sequence[NumbersCompared]) -> str:
    distances = [one.relative for one in numbers]
    farthest = max(numbers, key=lambda one: one.relative)
    if not farthest.relative:
        return f"the numbers sampled in {len(numbers):,} tensors are equal"
    middle = f"{median(distances):.2%} in the median tensor"
    most = f"{farthest.relative:.2%} in {named(farthest.name)}"
    return f"the numbers sampled in {len(numbers):,} tensors differ by {middle} and {most}"


def _kinds(names: Iterable[str]) -> list[str]:
    counts = Counter(map(module_kind, names))
    return [named(kind) for kind in sorted(counts, key=lambda kind: (-counts[kind], kind))]


# --- what else differs --------------------------------------------------------------------------


def _clauses(comparison: Comparison) -> Iterator[str]:
    if comparison.renamed:
        before, after = comparison.renamed
        yield (
            f"its names begin with {quoted(after)}{f' instead of {quoted(before)}' * bool(before)}"
            if after
            else f"its names lack the prefix {quoted(before)}"
        )
    wholes = (("lost", comparison.lost), ("has more:", comparison.gained))
    for verb, modules in wholes:
        if modules:
            yield f"it {verb} {_modules(modules)}"
    losing = sum(one.tensors for one in comparison.lost)
    gaining = sum(one.tensors for one in comparison.gained)
    if (count := len(comparison.removed) - losing) > 0:
        yield f"it lacks {count:,} more tensors of A" if losing else f"it lacks {count:,} tensors"
    if (count := len(comparison.added) - gaining) > 0:
        yield f"it has {count:,} tensors that A lacks"
    if comparison.reshaped:
        count = len(comparison.reshaped)
        names = _named(fold([one.name for one in comparison.reshaped]))
        yield f"{count:,} {_are(count)} of another shape ({names})"
    common = comparison.tensors[0] - len(comparison.removed)
    retyped = len(comparison.retyped)
    if 0 < retyped < _FEW * common and comparison.layouts[0] == comparison.layouts[1]:
        yield f"{retyped:,} {_are(retyped)} of another dtype"
    if comparison.files[0] != comparison.files[1]:
        count, other_count = comparison.files[1], comparison.files[0]
        yield f"it is in {count:,} file{'s' * (count > 1)}, A in {other_count:,}"
    if keys := _unexplained_keys(comparison):
        weighty = [key.key for key in keys if key.is_weighty]
        yield f"its config differs in {_named(weighty or [key.key for key in keys])}"


def _modules(modules: Sequence[Lost]) -> str:
    """Return the modules by their kinds: `the vision tower (model.visual)`."""
    names_by_kind: dict[str, list[str]] = {}
    for one in modules:
        names_by_kind.setdefault(one.what, []).append(one.module)
    texts = []
    for what, names in names_by_kind.items():
        patterns = _named(fold(names, words=False))
        count = f"{len(names):,} layers" if what == "a layer" and len(names) > 1 else what
        texts.append(f"{count} ({patterns})" if count else patterns)
    return _listed(texts)


def _unexplained_keys(comparison: Comparison) -> list[ConfigChange]:
    """Return the keys that differ for another reason than a change of packing or dtype."""
    is_packed = comparison.layouts[0] != comparison.layouts[1]
    is_cast = is_packed or bool(comparison.retyped)
    return [
        key
        for key in comparison.keys
        if not (is_packed and _QUANTIZATION.match(key.key))
        and not (is_cast and key.key.rpartition(".")[2] == "dtype")
    ]


def _named(names: Sequence[str]) -> str:
    return _listed([named(name) for name in names])


def _listed(texts: Sequence[str]) -> str:
    """Return the first texts, and the number of the others."""
    shown, more = list(texts[:_SHOWN]), len(texts) - _SHOWN
    if more == 1:
        shown, more = list(texts), 0
    if more > 0:
        return f"{', '.join(shown)} and {more:,} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def _are(count: int) -> str:
    return "is" if count == 1 else "are"

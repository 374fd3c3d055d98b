"""The changes that a fix may write: always, only with an option `--allow`, or never.

Tensor shapes determine lengths. A model's computation also depends on its number of heads, its
experts per token and its attention window. These differ between models of different sizes too, and
no tensor shows them. So the tables here list the keys that may be written; no other key is changed.

- `_LENGTHS`: rows of a matrix, or the inner size of a feed-forward layer. No other key depends on
  them. They are written if the stored shapes determine them.
- `_HEADS` and `HEAD_SIZES`: written if the stored shapes determine them, which needs a declared
  size of a head or a tensor that has this size (a norm over each head).
- `DEPTHS`: a larger number of layers is written, unless the config has a list with an entry for
  each layer, because no tensor shows the new entries. A smaller number needs the user's permission,
  because the files may be a part of a model.
- A vocabulary of less than half or more than twice the declared size belongs to another tokenizer,
  so the config belongs to another model.
- A width (`hidden_size`) is in no table, because head sizes and more depend on it.
- Two sizes at once, or a size and a number of labels, show that the config belongs to another
  model. They are not written.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from auditor.checkpoint.json_edits import ABSENT, Edit
from auditor.diagnosis.solving.size_keys import HEAD_SIZES, is_width
from auditor.messages import listed, named, quoted
from auditor.names.kinds import numbers_in

Shape = tuple[int, ...]


class Allow(StrEnum):
    """A change that is made only if the user allows it."""

    TIE_HEAD = "tie-head"
    LABELS = "labels"
    LAYERS = "layers"
    EXPERTS = "experts"
    CLASS = "class"
    NAMES = "names"


class Need(NamedTuple):
    """An option without which a change is not made, and the change's consequence."""

    allow: Allow
    consequence: str


class Unwritten(Exception):  # noqa: N818 - a fact about an edit, not an error
    """The error for a value that a fix must not write; the message gives the reason."""


class AnotherModel(Unwritten):
    """The error for values that show that the config is the config of another model."""


_LENGTHS = frozenset(
    {
        "vocab_size", "type_vocab_size", "n_vocab",
        "max_position_embeddings", "n_positions", "n_ctx", "max_source_positions",
        "max_target_positions", "image_size", "num_mel_bins",
        "intermediate_size", "ffn_dim", "d_ff", "n_inner", "hidden_dim", "ffn_hidden_size",
        "encoder_ffn_dim", "decoder_ffn_dim", "mlp_dim", "moe_intermediate_size",
        "shared_expert_intermediate_size", "relative_attention_num_buckets",
    }
)  # fmt: skip
_VOCABULARIES = frozenset({"vocab_size", "n_vocab"})
_FACTOR = 2  # the largest ratio of a resized vocabulary
_HEADS = frozenset(
    {
        "num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads",
        "num_kv_heads", "n_head_kv", "encoder_attention_heads", "decoder_attention_heads",
    }
)  # fmt: skip
DEPTHS = frozenset(
    {
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers",
        "encoder_layers", "decoder_layers",
    }
)  # fmt: skip
_EXPERTS = frozenset({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"})
_SIZES = _LENGTHS | _HEADS | HEAD_SIZES | DEPTHS | _EXPERTS
_CHOSEN = ("num_experts_per_tok", "moe_k", "num_experts_per_token", "moe_top_k")
_LABELS = frozenset({"num_labels", "id2label", "label2id"})
_DTYPES = frozenset({"dtype", "torch_dtype"})
_PACKED = frozenset({"quantization_config", "compression_config", "quantization"})
_PLAIN_MODULES = frozenset(
    {
        "modules_to_not_convert", "ignore", "llm_int8_skip_modules", "ignored_layers",
        "exclude_modules",
    }
)  # fmt: skip
_TIE = "tie_word_embeddings"
_CLASSES = "architectures"


def is_untying(edit: Edit) -> bool:
    """Whether the edit unties a head; only the values of both copies show if that is right."""
    return edit.path[-1] == _TIE and edit.after is False


def head_sizes(config: Mapping[str, Any], within: str = "") -> dict[str, int]:
    """Map the path of each head size that a config declares to its value."""
    sizes: dict[str, int] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            sizes |= head_sizes(value, f"{within}{name}.")
        elif name in HEAD_SIZES and type(value) is int:
            sizes[f"{within}{name}"] = value
    return sizes


def needs_of_renames(renames: Mapping[str, str], *, is_reading: bool = False) -> Iterator[Need]:
    """Yield the options that renames need, if they change layers or experts, or are a reading."""
    moved = sorted(name for name, new in renames.items() if not _keeps_numbers(name, new))
    for names, allow, what in (
        (moved, Allow.LAYERS, "would be those of layers with other numbers"),
        (sorted(renames) if is_reading else (), Allow.NAMES, _READ_AS),
    ):
        if names:
            example = f"{quoted(names[0])} would be {quoted(renames[names[0]])}"
            yield Need(allow, f"{len(names):,} tensors {what}: {example}")


def require_one_reading(renames: Mapping[str, str], shapes: Mapping[str, Shape]) -> None:
    """Raise Unwritten if two renamed tensors of one layer could be swapped.

    They could if they have one shape, unless their last module's names, which stay, differ.
    """
    placed: dict[tuple[object, ...], str] = {}
    for name, new in renames.items():
        end = name.split(".")[-2:]
        kept = ".".join(end) if new.split(".")[-2:] == end else None
        place = (kept, shapes.get(name), numbers_in(name))
        if (other := placed.setdefault(place, name)) != name:
            raise Unwritten(f"the shapes do not tell {quoted(other)} from {quoted(name)}")


_READ_AS = "would get the class's names, and only their shapes show that they belong there"


def _keeps_numbers(name: str, new: str) -> bool:
    """Whether the numbers of one name are, in order, among the numbers of the other name."""
    old_numbers, new_numbers = numbers_in(name), numbers_in(new)
    longer, shorter = (
        (old_numbers, new_numbers)
        if len(old_numbers) >= len(new_numbers)
        else (new_numbers, old_numbers)
    )
    remaining = iter(longer)
    return all(number in remaining for number in shorter)


def needs_of_edits(
    edits: Iterable[Edit],
    determined: Mapping[str, int],
    config: Mapping[str, Any],
) -> Iterator[Need]:
    """Yield the options that edits of a config need; raise Unwritten if a value must not change.

    `determined` maps paths to the values that the stored shapes determine. `config` is the config
    before the edits.
    """
    edits = tuple(edit for edit in edits if not _is_respelt(edit))
    changed = tuple(edit for edit in edits if edit.path[-1] in _SIZES)
    depths = tuple(edit for edit in changed if edit.path[-1] in DEPTHS)
    for edit in edits:
        name, path = edit.path[-1], ".".join(edit.path)
        if name in _SIZES:
            _require_determined(edit, determined)
            if name in _VOCABULARIES:
                _require_same_vocabulary(edit)
        elif name in _PLAIN_MODULES or _is_safe(edit) or _goes_with(edit, depths):
            continue
        elif name == _TIE and edit.after is True:
            yield Need(Allow.TIE_HEAD, _TIED)
        elif _LABELS.isdisjoint(edit.path) and name != _CLASSES:
            kind = AnotherModel if is_width(path) else Unwritten
            raise kind(f"other values that no shape shows may differ with {quoted(path)}")
    labels = ["num_labels"] if any(not _LABELS.isdisjoint(edit.path) for edit in edits) else []
    differ = [*(edit.path[-1] for edit in changed), *labels]
    if len(differ) > 1:
        raise AnotherModel(f"{listed(differ)} differ at once, as in the config of another model")
    yield from _needs_of_sizes(changed, config)
    yield from _needs_of_labels(edits, determined)
    yield from _needs_of_class(edits)


_TIED = (
    "its output layer would be its input embeddings; an output layer with values of its own "
    "would stay lost"
)


def _is_respelt(edit: Edit) -> bool:
    """Whether an edit only changes the spelling of a value: "12" or 12.0 becomes 12."""
    before, after = edit.before, edit.after
    if isinstance(before, str) and type(after) in {int, bool}:
        return before.lower() == str(after).lower()
    return type(before) is float and type(after) is int and before == after


def _is_safe(edit: Edit) -> bool:
    """Whether the edit sets a dtype, declares weights unquantized, or adds biases or qk norms.

    The stored tensors imply such edits.
    """
    name = edit.path[-1]
    if name in _DTYPES:
        return True
    if name in _PACKED:
        return edit.after is ABSENT or edit.after is None
    adds = edit.after is True and edit.before in (False, None, ABSENT)
    return adds and ("bias" in name or "qk_norm" in name or "qk_layernorm" in name)


def _goes_with(edit: Edit, depths: tuple[Edit, ...]) -> bool:
    """Whether the edit adapts a list of layers to their new number, or removes such a list."""
    before, after = edit.before, edit.after
    if edit.path[-1] in {"stage_names", "out_features", "out_indices"}:
        return bool(depths) and after is ABSENT
    return (
        isinstance(before, list)
        and isinstance(after, list)
        and any((len(before), len(after)) == (one.before, one.after) for one in depths)
    )


def layer_list_edits(config: Mapping[str, Any], edits: Iterable[Edit]) -> Iterator[Edit]:
    """Yield the edits of lists with an entry for each layer, if the number of layers changes.

    A shorter list keeps the first entries. Raise Unwritten for more layers: even if all entries are
    equal, the next one may differ (every sixth layer of a Gemma 3 is of another type).
    """
    edits = tuple(edits)
    edited = {edit.path for edit in edits}
    for depth in edits:
        if depth.path[-1] not in DEPTHS or type(depth.before) is not int:
            continue
        within: Any = config
        for folder in depth.path[:-1]:
            within = within[folder]
        for name, entries in within.items():
            path = (*depth.path[:-1], name)
            if path in edited or "layer" not in name or not isinstance(entries, list):
                continue
            if len(entries) != depth.before:
                continue
            if depth.after > depth.before:
                raise Unwritten(
                    f"{named(name)} has an entry for each of {depth.before} layers, and no shape "
                    "shows the others"
                )
            yield Edit(path, entries, entries[: depth.after])


def _require_determined(edit: Edit, determined: Mapping[str, int]) -> None:
    path = ".".join(edit.path)
    if type(edit.after) is not int or determined.get(path) != edit.after:
        raise Unwritten(f"no stored shape determines {quoted(path)}: several values would fit")


def _require_same_vocabulary(edit: Edit) -> None:
    before, after = edit.before, edit.after
    if type(before) is int and not before <= _FACTOR * after <= _FACTOR**2 * before:
        raise AnotherModel(
            f"a vocabulary of {after:,} is not one of {before:,} with tokens added or taken away: "
            "the config is that of another model"
        )


def _needs_of_sizes(changed: tuple[Edit, ...], config: Mapping[str, Any]) -> Iterator[Need]:
    for edit in changed:
        name, before, after = edit.path[-1], edit.before, edit.after
        if name in DEPTHS and (type(before) is not int or after < before):
            declared = "no number is" if before is ABSENT else f"{before} are"
            consequence = f"the model would have {after:,} layers ({name}), and {declared} declared"
            yield Need(Allow.LAYERS, consequence)
        if name in _EXPERTS:
            chosen = _neighbouring_number(config, edit, _CHOSEN)
            more = f", of which a token still uses {chosen:,}" if chosen else ""
            yield Need(Allow.EXPERTS, f"each layer would have {after:,} experts{more}")


def _neighbouring_number(config: Mapping[str, Any], edit: Edit, names: Iterable[str]) -> int | None:
    """Return the first integer under one of `names` next to the edited key; None without one."""
    within: Any = config
    for folder in edit.path[:-1]:
        within = within.get(folder) if isinstance(within, Mapping) else None
    values = within if isinstance(within, Mapping) else {}
    return next((values[name] for name in names if type(values.get(name)) is int), None)


def _needs_of_labels(edits: tuple[Edit, ...], determined: Mapping[str, int]) -> Iterator[Need]:
    edited = [edit for edit in edits if not _LABELS.isdisjoint(edit.path)]
    if not edited:
        return
    count = next((value for path, value in determined.items() if path.endswith("num_labels")), None)
    if count is None:
        raise Unwritten("no stored shape determines the number of labels")
    removed_labels = [
        str(one.before) for one in edited if "id2label" in one.path and one.after is ABSENT
    ]
    new = [str(one.after) for one in edited if "id2label" in one.path and one.before is ABSENT]
    consequence = f"the classifier would have {count:,} labels"
    if removed_labels:
        consequence += f", without {listed(removed_labels)}"
    if new:
        consequence += f", with {listed(new)} for those that have no name"
    yield Need(Allow.LABELS, f"{consequence}; other labels keep their names")


def _needs_of_class(edits: tuple[Edit, ...]) -> Iterator[Need]:
    for edit in edits:
        if edit.path == (_CLASSES,):
            after = edit.after[0] if isinstance(edit.after, list) and edit.after else edit.after
            before = edit.before[0] if isinstance(edit.before, list) and edit.before else "no class"
            yield Need(Allow.CLASS, f"the model would be a {after}, and {before} is declared")

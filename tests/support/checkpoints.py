"""Small BERT checkpoints as values: configs, the tensors a class stores, and ways to spoil them."""

import json
from dataclasses import dataclass
from math import prod

from hypothesis import strategies as st

from auditor.analytic import Expectation, Role, catalogue, read_config
from auditor.tensors import Span, StoredTensor

BERT_CLASSES = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertLMHeadModel",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
)

TINY = {
    "model_type": "bert",
    "vocab_size": 11,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 6,
    "type_vocab_size": 2,
}
# A decoder whose sizes all differ, without a model type.
LLAMA = {
    "vocab_size": 131,
    "hidden_size": 40,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def config_bytes(**changes) -> bytes:
    return json.dumps({**TINY, **changes}).encode()


def expect(target: str, **changes) -> Expectation:
    return catalogue.expect(read_config("config.json", config_bytes(**changes)), target)


def siblings(**changes) -> tuple[catalogue.Sibling, ...]:
    config = read_config("config.json", config_bytes(**changes))
    return tuple(catalogue.sibling(config, name) for name in BERT_CLASSES)


def stored(name: str, shape: tuple[int, ...], *, dtype="F32", file="model.safetensors"):
    return StoredTensor(name, dtype, shape, prod(shape), file, Span(0, 4 * prod(shape)))


def stored_by(expectation: Expectation) -> list[StoredTensor]:
    """What save_pretrained writes: the parameters, not what is tied and no buffers."""
    return [
        stored(tensor.name, tensor.shape)
        for tensor in expectation.tensors
        if tensor.role is Role.PARAMETER
    ]


@dataclass(frozen=True, kw_only=True)
class Spoilt:
    """A checkpoint of one class, changed in every way at once, and the class it is audited for."""

    tensors: tuple[StoredTensor, ...]
    declared: str
    target: str
    changes: dict[str, object]


_OLD = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


def _renamed(tensor: StoredTensor, how: str) -> StoredTensor:
    name = tensor.name
    match how:
        case "old":
            for new, old in _OLD.items():
                name = name.replace(new, old)
        case "bare":
            name = name.removeprefix("bert.")
        case "prefixed":
            name = f"bert.{name}"
        case "stranger":
            name = f"module.{name}"
    return tensor._replace(name=name)


def _changed(draw, tensor: StoredTensor) -> list[StoredTensor]:
    """The tensor as it ends up in the file: often as it was, else renamed, reshaped, or gone."""
    how = draw(
        st.sampled_from(
            ("kept",) * 8
            + ("old", "bare", "prefixed", "stranger", "dropped", "reshaped", "twice", "half", "int")
        )
    )
    match how:
        case "dropped":
            return []
        case "reshaped":
            shape = (*tensor.shape, 3)
            return [tensor._replace(shape=shape, elements=prod(shape))]
        case "twice":
            return [tensor, tensor._replace(file="second.safetensors")]
        case "half":
            return [tensor._replace(dtype="F16")]
        case "int":
            return [tensor._replace(dtype="I32")]
        case _:
            return [_renamed(tensor, how)]


_EXTRA = (
    ("bert.embeddings.position_ids", (1, 6), "I64"),
    ("embeddings.position_ids", (1, 6), "I64"),
    ("cls.predictions.decoder.weight", (11, 4), "F32"),
    ("cls.predictions.decoder.bias", (11,), "F32"),
    ("extra", (3, 5), "F32"),
    ("bert.extra.mask", (7,), "BOOL"),
    ("bert.pooler.dense.weight", (4, 4), "F32"),
    ("classifier.weight", (2, 4), "F32"),
    ("classifier.weight ", (2, 4), "F32"),
)


@st.composite
def spoilt(draw) -> Spoilt:
    declared, target = draw(st.sampled_from(BERT_CLASSES)), draw(st.sampled_from(BERT_CLASSES))
    changes = {
        "tie_word_embeddings": draw(st.booleans()),
        "num_hidden_layers": draw(st.integers(0, 2)),
        "num_labels": draw(st.integers(1, 3)),
    }
    whole = stored_by(expect(declared, **changes))
    tensors = [after for tensor in whole for after in _changed(draw, tensor)]
    extra = draw(st.lists(st.sampled_from(_EXTRA), unique=True, max_size=4))
    present = {(tensor.name, tensor.file) for tensor in tensors}
    tensors += [
        stored(name, shape, dtype=dtype)
        for name, shape, dtype in extra
        if (name, "model.safetensors") not in present
    ]
    seen: dict[tuple[str, str], StoredTensor] = {
        (tensor.name, tensor.file): tensor for tensor in tensors
    }
    return Spoilt(tensors=tuple(seen.values()), declared=declared, target=target, changes=changes)

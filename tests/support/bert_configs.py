"""BERT configs as a checkpoint would hold them: the smallest, the published, and random ones."""

import json
from typing import Any

from hypothesis import strategies as st

from auditor.analytic import Config, catalogue, read_config
from auditor.analytic.config_classes import FaultyConfigError

CLASSES = catalogue.siblings("bert")


def config_of(**values: Any) -> Config:
    return read_config("config.json", json.dumps(values).encode())


def refusal(target: str, **values: Any) -> str:
    """Why no model of that class can be built, a line for each reason; empty: it can."""
    try:
        faults = catalogue.expect(config_of(**values), target).faults
    except FaultyConfigError as error:
        faults = error.faults
    return "\n".join(fault.reason for fault in faults)


def _sizes(largest: int) -> st.SearchStrategy[int]:
    return st.integers(1, largest)


@st.composite
def bert_values(draw: st.DrawFn) -> dict[str, Any]:
    """Any small config that transformers can build, with any of its keys left out."""
    heads = draw(_sizes(4))
    values = {
        "num_attention_heads": heads,
        "hidden_size": heads * draw(_sizes(6)),
        "vocab_size": draw(_sizes(50)),
        "max_position_embeddings": draw(_sizes(20)),
        "type_vocab_size": draw(_sizes(3)),
        "num_hidden_layers": draw(st.integers(0, 4)),
        "intermediate_size": draw(_sizes(40)),
        "tie_word_embeddings": draw(st.booleans()),
        "num_labels": draw(_sizes(5)),
        "id2label": {str(number): "label" for number in range(draw(_sizes(5)))},
    }
    if draw(st.booleans()):
        values |= {"is_decoder": True, "add_cross_attention": draw(st.booleans())}
    dropped = draw(st.sets(st.sampled_from(sorted(values))))
    if not {"num_attention_heads", "hidden_size"}.isdisjoint(dropped):
        dropped |= {"num_attention_heads", "hidden_size"}
    if "is_decoder" in dropped:
        dropped |= {"add_cross_attention"}
    return {"pad_token_id": None} | {k: v for k, v in values.items() if k not in dropped}

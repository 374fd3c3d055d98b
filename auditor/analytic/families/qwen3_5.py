"""Qwen 3.5: three layers of linear attention for one of full attention, and an eye for pictures.

JevForDecision, which transformers lists for this type, is built from a config of its own type.
"""

from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from auditor.analytic.blocks import Linear, Module, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families import qwen3_vl
from auditor.analytic.families._decoder import KEYS, gated_mlp
from auditor.analytic.families._qwen3_5 import TEXT_RENAMES, register, text_model
from auditor.analytic.family import LoadingFacts, loads

TEXT = Family(
    model_type="qwen3_5_text",
    prefix="model",
    base="Qwen3_5TextModel",
    keys=(
        f"{KEYS} head_dim attention_bias linear_conv_kernel_dim linear_key_head_dim "
        "linear_value_head_dim linear_num_key_heads linear_num_value_heads layer_types"
    ),
    own=MappingProxyType({"full_attention_interval": 4, "mtp_num_hidden_layers": 0}),
)
VISION = replace(
    qwen3_vl.VISION,
    model_type="qwen3_5_vision",
    base="Qwen3_5VisionModel",
    own=MappingProxyType({"deepstack_visual_indexes": (8, 16, 24)}),
)
QWEN3_5 = replace(qwen3_vl.QWEN3_VL, model_type="qwen3_5", base="Qwen3_5Model")


model = register(QWEN3_5, TEXT, VISION, gated_mlp)


@architecture("Qwen3_5TextForSequenceClassification", TEXT)
def text_for_sequence_classification(c: Config) -> Module:
    return module(model=text_model(c, partial(gated_mlp, c)), score=score(c, c, bias=False))


@architecture("Qwen3_5ForSequenceClassification", QWEN3_5)
def for_sequence_classification(c: Config) -> Module:
    return module(model=model(c), score=score(c, c.nested("text_config", TEXT), bias=False))


@architecture("Qwen3_5ForTokenClassification", QWEN3_5)
def for_token_classification(c: Config) -> Module:
    return module(model=model(c), score=score(c, c.nested("text_config", TEXT), bias=True))


def score(c: Config, text: Config, *, bias: bool) -> Module:
    return Linear(text.dim("hidden_size"), c.num_labels, bias=bias)


loads(
    "qwen3_5",
    LoadingFacts(inside=(("language_model", "text_config", "qwen3_5_text"),), silent=("^mtp.*",)),
)
loads("qwen3_5_text", LoadingFacts(rules=TEXT_RENAMES, silent=("^mtp.*",), rotary=True))
loads("qwen3_5_vision", LoadingFacts(silent=("^mtp.*",)))
loads("Qwen3_5ForCausalLM", LoadingFacts(silent=("^model.visual.*",)))

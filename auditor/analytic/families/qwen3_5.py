"""Qwen 3.5, dense or with experts: three of four layers have linear attention; and vision.

Linear attention is a gated delta net, https://arxiv.org/abs/2412.06464.
JevForDecision, which transformers lists for this type, is built from a config of its own type.
"""

from collections.abc import Callable
from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from auditor.analytic.blocks import (
    Embedding,
    Extra,
    LayerNorm,
    Linear,
    Module,
    Param,
    RMSNorm,
    module,
    stack,
)
from auditor.analytic.catalogue import Builder, Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families import qwen3_vl
from auditor.analytic.families._decoder import (
    FUSED_EXPERTS,
    KEYS,
    attention,
    decoder,
    gated_mlp,
    head_dim,
    layer_types,
)
from auditor.analytic.families._drafting import drafting_aside
from auditor.analytic.families._vlm import lm_head
from auditor.analytic.families.qwen2_vl import tower
from auditor.analytic.families.qwen_moe import shared_and_sparse_mlp
from auditor.analytic.family import LoadingFacts, Renames, loads
from auditor.errors import CheckpointError


def text_layer(c: Config, kind: str, mlp: Callable[[], Module]) -> Module:
    D = c.dim("hidden_size")
    return module(
        linear_attn=delta_net(c) if kind == "linear_attention" else None,
        self_attn=full_attention(c) if kind == "full_attention" else None,
        mlp=mlp(),
        input_layernorm=RMSNorm(D),
        post_attention_layernorm=RMSNorm(D),
    )


def full_attention(c: Config) -> Module:
    """Return Qwen 3's attention; the query projection also yields a gate for each head."""
    D, H, width = c.dim("hidden_size"), c.dim("num_attention_heads"), head_dim(c)
    bias = c.flag("attention_bias")
    heads = attention(c, width, qkv_bias=bias, out_bias=bias, qk_norm=True)
    return module(**{**dict(heads.children), "q_proj": Linear(D, 2 * H * width, bias=bias)})


def delta_net(c: Config) -> Module:
    """Return linear attention, with a convolution for q, k and v, and a decay per value head."""
    D, heads, width = (
        c.dim("hidden_size"),
        c.dim("linear_num_value_heads"),
        c.dim("linear_value_head_dim"),
    )
    values = heads * width
    qkv = 2 * c.dim("linear_num_key_heads") * c.dim("linear_key_head_dim") + values
    return module(
        dt_bias=Param((heads,)),
        A_log=Param((heads,)),
        conv1d=module(weight=Param((qkv, 1, c.dim("linear_conv_kernel_dim")))),
        norm=RMSNorm(width),
        out_proj=Linear(values, D, bias=False),
        in_proj_qkv=Linear(D, qkv, bias=False),
        in_proj_z=Linear(D, values, bias=False),
        in_proj_b=Linear(D, heads, bias=False),
        in_proj_a=Linear(D, heads, bias=False),
    )


def text_model(c: Config, mlp: Callable[[], Module], others: str = "full_attention") -> Module:
    """Return the language model; layers of unknown types are built as the type `others`."""

    def kind(number: int) -> str:
        interval = c.integer("full_attention_interval")
        if not interval:
            key = f"{c.path}full_attention_interval"
            raise CheckpointError(f"{key} is 0; it has to be 1 or more", key)
        return "linear_attention" if (number + 1) % interval else "full_attention"

    known_kinds = {"linear_attention", "full_attention"}
    types = [one if one in known_kinds else others for one in layer_types(c, kind)]
    count = c.dim("num_hidden_layers")
    layers = stack(count, types.__getitem__, lambda kind: text_layer(c, kind, mlp))
    return decoder(c, layers)


def visual(c: Config) -> Module:
    D, mlp = c.dim("hidden_size"), partial(qwen3_vl.vision_mlp, c)
    return module(
        pos_embed=Embedding(c.dim("num_position_embeddings"), D),
        **tower(c, D, norm=LayerNorm, mlp=mlp, bias=True),
        merger=qwen3_vl.merger(c, LayerNorm(D)),
    )


def register(
    composite: Family, text: Family, vision: Family, mlp: Builder, others: str = "full_attention"
) -> Builder:
    """Register the classes of both variants; return the composite model for further heads."""
    stem = composite.base.removesuffix("Model")
    architecture(vision.base, vision)(visual)

    @architecture(text.base, text)
    def language_model(c: Config) -> Module:
        return text_model(c, partial(mlp, c), others)

    @architecture(f"{stem}ForCausalLM", text)
    def for_causal_lm(c: Config) -> Module:
        tied = "model.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
        return module(model=language_model(c), lm_head=lm_head(c, tied=tied), **drafters(c))

    @architecture(composite.base, composite)
    def model(c: Config) -> Module:
        return module(
            visual=visual(c.nested("vision_config", vision)),
            language_model=language_model(c.nested("text_config", text)),
        )

    @architecture(f"{stem}ForConditionalGeneration", composite)
    def for_conditional_generation(c: Config) -> Module:
        inner, embeddings = (
            c.nested("text_config", text),
            "model.language_model.embed_tokens.weight",
        )
        head = lm_head(inner, tied=embeddings if c.flag("tie_word_embeddings") else None)
        return module(model=model(c), lm_head=head, **drafters(inner))

    def drafters(c: Config) -> dict[str, Extra]:
        return drafting_aside(c, partial(text_layer, c, "full_attention", partial(mlp, c)))

    return model


TEXT_RENAMES: Renames = ((r"^model\.language_model\.(.+)", r"model.\1"),)


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


# --- Qwen 3.5 with experts ------------------------------------------------------------------------

# Every token uses one shared expert, too.

QWEN3_5_MOE_TEXT = Family(
    model_type="qwen3_5_moe_text",
    prefix="model",
    base="Qwen3_5MoeTextModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads "
        "head_dim attention_bias linear_conv_kernel_dim linear_key_head_dim "
        "linear_value_head_dim linear_num_key_heads linear_num_value_heads layer_types "
        "tie_word_embeddings moe_intermediate_size shared_expert_intermediate_size "
        "num_experts num_experts_per_tok"
    ),
    own=MappingProxyType(
        {"intermediate_size": 12288, "full_attention_interval": 4, "mtp_num_hidden_layers": 0}
    ),
)
QWEN3_5_MOE_VISION = replace(VISION, model_type="qwen3_5_moe_vision", base="Qwen3_5MoeVisionModel")
QWEN3_5_MOE = replace(QWEN3_5, model_type="qwen3_5_moe", base="Qwen3_5MoeModel")

register(QWEN3_5_MOE, QWEN3_5_MOE_TEXT, QWEN3_5_MOE_VISION, shared_and_sparse_mlp, others="neither")

loads(
    "qwen3_5_moe",
    LoadingFacts(
        inside=(("language_model", "text_config", "qwen3_5_moe_text"),),
        silent=("^mtp.*",),
    ),
)
loads(
    "qwen3_5_moe_text",
    LoadingFacts(rules=(*TEXT_RENAMES, *FUSED_EXPERTS), silent=("^mtp.*",), rotary=True),
)
loads("qwen3_5_moe_vision", LoadingFacts(silent=("^mtp.*",)))
loads("Qwen3_5MoeForCausalLM", LoadingFacts(silent=("^model.visual.*",)))

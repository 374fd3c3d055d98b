"""T5 and mT5, https://arxiv.org/abs/1910.10683: an encoder and a decoder share one embedding."""

from typing import Any

from msgspec.structs import replace

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Embedding,
    Extra,
    Layer,
    Linear,
    Module,
    Param,
    Repeat,
    RMSNorm,
    Stack,
    Submodel,
    Tied,
    module,
    sequential,
    stack,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import answers, labelled
from auditor.analytic.family import LoadingFacts, loads

T5 = Family(
    model_type="t5",
    prefix="transformer",
    base="T5Model",
    keys=(
        "vocab_size d_model d_kv d_ff num_layers num_decoder_layers num_heads "
        "relative_attention_num_buckets feed_forward_proj"
    ),
)

EMBEDDING = "shared.weight"  # shared by all towers; tie_word_embeddings concerns only the head


def t5_model(c: Config) -> Module:
    return module(
        shared=Embedding(c.dim("vocab_size"), c.dim("d_model")),
        encoder=tower(c, blocks(c, c.dim("num_layers"))),
        decoder=tower(c, decoder_blocks(c)),
    )


def t5_encoder(c: Config) -> Module:
    """Return the encoder-only model; it has cross-attention if its config is a decoder's."""
    return module(
        shared=Embedding(c.dim("vocab_size"), c.dim("d_model")),
        encoder=tower(c, blocks(c, c.dim("num_layers"), decoder=c.truth("is_decoder"))),
    )


def tower(c: Config, block: Repeat | Stack) -> Module:
    return module(
        embed_tokens=module(weight=Tied(EMBEDDING)),
        block=block,
        final_layer_norm=RMSNorm(c.dim("d_model")),
    )


def decoder_blocks(c: Config) -> Repeat | Stack:
    return blocks(c, c.optional("num_decoder_layers") or c.dim("num_layers"), decoder=True)


def blocks(c: Config, count: Dim, *, decoder: bool = False) -> Repeat | Stack:
    """Return blocks; the first block has the relative position biases, which all blocks use."""

    def block(first: bool) -> Module:  # noqa: FBT001 - the only difference of blocks
        norm = RMSNorm(c.dim("d_model"))
        own, across = attention(c, biased=first), attention(c, unused=first)
        layers = [module(SelfAttention=own, layer_norm=norm)]
        if decoder:
            layers.append(module(EncDecAttention=across, layer_norm=norm))
        layers.append(module(DenseReluDense=feed_forward(c), layer_norm=norm))
        return module(layer=sequential(*layers))

    return stack(count, lambda number: number == 0, block)


def attention(c: Config, *, biased: bool = False, unused: bool = False) -> Module:
    """Return attention; `unused` adds a bias of the first checkpoints that no class reads."""
    D, H = c.dim("d_model"), c.dim("num_heads")
    heads = H * c.dim("d_kv")
    bias = Param((c.dim("relative_attention_num_buckets"), H), Layer.EMBEDDING)
    return module(
        q=Linear(D, heads, bias=False),
        k=Linear(D, heads, bias=False),
        v=Linear(D, heads, bias=False),
        o=Linear(heads, D, bias=False),
        relative_attention_bias=module(weight=Extra(bias) if unused else bias)
        if biased or unused
        else None,
    )


def feed_forward(c: Config) -> Module:
    D, F = c.dim("d_model"), c.dim("d_ff")
    inner = Linear(D, F, bias=False)
    into = {"wi_0": inner, "wi_1": inner} if gated(c) else {"wi": inner}
    return module(**into, wo=Linear(F, D, bias=False), act=activation(c, "dense_act_fn"))


def gated(c: Config) -> bool:
    """Return whether the feed-forward has a gate: `is_gated_act` in newer configs."""
    if c.has("is_gated_act"):
        return c.truth("is_gated_act")
    return c.text("feed_forward_proj").split("-")[0] == "gated"


@derived_defaults("T5Config", "MT5Config")
def from_older_keys(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set num_decoder_layers to num_layers, and split `feed_forward_proj`: "gated-gelu"."""
    del others
    if config["num_decoder_layers"] is None:
        config.set("num_decoder_layers", config["num_layers"])
    words = config["feed_forward_proj"].split("-")
    config.values["is_gated_act"] = words[0] == "gated"
    is_older = words == ["gated", "gelu"]
    config.values["dense_act_fn"] = "gelu_new" if is_older else words[-1]


CROSS_BIAS = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)


def register(family: Family, stem: str) -> None:
    """Register the six classes of T5 and of models with equal tensors."""
    architecture(f"{stem}Model", family)(t5_model)
    architecture(f"{stem}EncoderModel", family)(t5_encoder)

    @architecture(f"{stem}ForConditionalGeneration", family)
    def for_conditional_generation(c: Config) -> Module:
        V, D = c.dim("vocab_size"), c.dim("d_model")
        is_separate = c.separate_head and c.denies_ties  # transformers 5 ties it nevertheless
        head = Linear(D, V, bias=False) if is_separate else module(weight=Tied(EMBEDDING))
        return Module((*t5_model(c).children, ("lm_head", head)))

    @architecture(f"{stem}ForQuestionAnswering", family)
    def for_question_answering(c: Config) -> Module:
        return Module((*t5_model(c).children, *answers(c).children))

    @architecture(f"{stem}ForSequenceClassification", family)
    def for_sequence_classification(c: Config) -> Module:
        D = c.dim("d_model")
        head = module(
            dense=Linear(D, D),
            out_proj=Linear(D, c.num_labels),
        )
        return module(transformer=Submodel(t5_model(c)), classification_head=head)

    @architecture(f"{stem}ForTokenClassification", family)
    def for_token_classification(c: Config) -> Module:
        return module(transformer=Submodel(t5_encoder(c)), **dict(labelled(c).children))

    crossed = LoadingFacts(silent=CROSS_BIAS)
    loads(family.base, crossed)
    for head in ("ConditionalGeneration", "QuestionAnswering", "SequenceClassification"):
        loads(f"{stem}For{head}", crossed)


register(T5, "T5")

loads("T5EncoderModel", LoadingFacts(silent=("decoder",)))
loads("T5ForTokenClassification", LoadingFacts(silent=("decoder",)))


# --- mT5 ------------------------------------------------------------------------------------------

# https://arxiv.org/abs/2010.11934: T5 with other sizes, gated by default.

register(replace(T5, model_type="mt5", base="MT5Model"), "MT5")

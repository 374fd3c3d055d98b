"""T5, https://arxiv.org/abs/1910.10683: an encoder and a decoder that share one embedding."""

from types import MappingProxyType

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
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import answers, labelled
from auditor.errors import CheckpointError

T5 = Family(
    model_type="t5",
    prefix="transformer",
    base="T5Model",
    defaults=MappingProxyType(
        {
            "vocab_size": 32128,
            "d_model": 512,
            "d_kv": 64,
            "d_ff": 2048,
            "num_layers": 6,
            "num_decoder_layers": None,
            "num_heads": 8,
            "relative_attention_num_buckets": 32,
            "feed_forward_proj": "relu",
        }
    ),
    synonyms=MappingProxyType(
        {
            "hidden_size": "d_model",
            "num_attention_heads": "num_heads",
            "num_hidden_layers": "num_layers",
            "head_dim": "d_kv",
        }
    ),
)

EMBEDDING = "shared.weight"  # by all towers; tie_word_embeddings is about the head alone


def t5_model(c: Config) -> Module:
    return module(
        shared=Embedding(c.dim("vocab_size"), c.dim("d_model")),
        encoder=tower(c, blocks(c, c.dim("num_layers"))),
        decoder=tower(c, decoder_blocks(c)),
    )


def t5_encoder(c: Config) -> Module:
    return module(
        shared=Embedding(c.dim("vocab_size"), c.dim("d_model")),
        encoder=tower(c, blocks(c, c.dim("num_layers"))),
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
    """Blocks of which the first alone has the biases by distance, for all of them."""

    def block(first: bool) -> Module:  # noqa: FBT001 - the one thing in which blocks differ
        norm = RMSNorm(c.dim("d_model"))
        layers = [module(SelfAttention=attention(c, biased=first), layer_norm=norm)]
        if decoder:
            layers.append(module(EncDecAttention=attention(c, unused=first), layer_norm=norm))
        layers.append(module(DenseReluDense=feed_forward(c), layer_norm=norm))
        return module(layer=sequential(*layers))

    return stack(count, lambda number: number == 0, block)


def attention(c: Config, *, biased: bool = False, unused: bool = False) -> Module:
    """`unused`: with a bias that the first checkpoints store, and that no class reads."""
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
    match c.text("feed_forward_proj").split("-"):
        case [_]:
            inner = {"wi": Linear(D, F, bias=False)}
        case ["gated", _]:
            inner = {"wi_0": Linear(D, F, bias=False), "wi_1": Linear(D, F, bias=False)}
        case _:
            raise CheckpointError("feed_forward_proj is neither ACTIVATION nor gated-ACTIVATION")
    return module(**inner, wo=Linear(F, D, bias=False))


def register(family: Family, stem: str) -> None:
    """The six classes of T5 and of those that keep its tensors."""
    architecture(f"{stem}Model", family)(t5_model)
    architecture(f"{stem}EncoderModel", family)(t5_encoder)

    @architecture(f"{stem}ForConditionalGeneration", family)
    def for_conditional_generation(c: Config) -> Module:
        V, D = c.dim("vocab_size"), c.dim("d_model")
        apart = c.apart and c.denies_ties  # transformers 5 ties it all the same
        head = Linear(D, V, bias=False) if apart else module(weight=Tied(EMBEDDING))
        return Module((*t5_model(c).children, ("lm_head", head)))

    @architecture(f"{stem}ForQuestionAnswering", family)
    def for_question_answering(c: Config) -> Module:
        return Module((*t5_model(c).children, *answers(c).children))

    @architecture(f"{stem}ForSequenceClassification", family)
    def for_sequence_classification(c: Config) -> Module:
        D = c.dim("d_model")
        head = module(dense=Linear(D, D), out_proj=Linear(D, c.num_labels))
        return module(transformer=Submodel(t5_model(c)), classification_head=head)

    @architecture(f"{stem}ForTokenClassification", family)
    def for_token_classification(c: Config) -> Module:
        return module(transformer=Submodel(t5_encoder(c)), **dict(labelled(c).children))


register(T5, "T5")

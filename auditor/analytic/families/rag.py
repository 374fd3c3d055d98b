"""RAG, https://arxiv.org/abs/2005.11401: a question encoder, and a generator of answers."""

from types import MappingProxyType

from auditor.analytic.blocks import Linear, Module, Submodel, module
from auditor.analytic.catalogue import (
    Family,
    architecture,
    base_model,
    completed_config,
    headed_model,
)
from auditor.analytic.config import Config
from auditor.analytic.families.bert import bare
from auditor.analytic.family import LoadingFacts, loads
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

RAG = Family(
    model_type="rag",
    prefix="rag",
    base="RagModel",
    own=MappingProxyType(dict.fromkeys(("question_encoder", "generator"), MappingProxyType({}))),
)
# DPR's question encoder, https://arxiv.org/abs/2004.04906: a BERT and a projection.
DPR = Family(
    model_type="dpr",
    prefix="",
    base="",
    own=MappingProxyType(
        {
            "add_cross_attention": False,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "is_decoder": False,
            "max_position_embeddings": 512,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "projection_dim": 0,
            "type_vocab_size": 2,
            "vocab_size": 30522,
        }
    ),
)
_GENERATORS = frozenset({"bart", "mbart", "pegasus"})


@architecture("RagModel", RAG)
def rag_model(c: Config) -> Module:
    generator = completed_config(c.nested("generator"), "bart")
    if generator.model_type not in {None, *_GENERATORS}:
        what = f"{generator.path}model_type {quoted(generator.model_type or '')}"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, f"no closed form is known for {what}")
    return module(
        question_encoder=question_encoder(c),
        generator=Submodel(headed_model(generator, ("ForConditionalGeneration",))),
    )


def question_encoder(c: Config) -> Module | Submodel:
    inner = c.nested("question_encoder")
    if (inner.model_type or DPR.model_type) != DPR.model_type:
        return Submodel(base_model(completed_config(inner, "")))
    inner = c.nested("question_encoder", DPR)
    D, P = inner.dim("hidden_size"), inner.dim("projection_dim")
    projection = Linear(D, P) if P.value > 0 else None
    return module(question_encoder=module(bert_model=bare(inner), encode_proj=projection))


@architecture("RagTokenForGeneration", RAG)
@architecture("RagSequenceForGeneration", RAG)
def for_generation(c: Config) -> Module:
    return module(rag=rag_model(c))


loads("rag", LoadingFacts(inside=(("generator", "generator", "bart"),), positions=True))
_BIAS = LoadingFacts(
    optional_buffers=(r"^(rag\.)?generator\.final_logits_bias$",), unmissed=("final_logits_bias",)
)
for name in ("RagModel", "RagTokenForGeneration", "RagSequenceForGeneration"):
    loads(name, _BIAS)

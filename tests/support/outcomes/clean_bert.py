"""The outcome of a healthy checkpoint, with its published figures."""

from support.outcomes.making import COMMIT, LAYER, expected, row, stored

from auditor.analytic import Role, Symbol
from auditor.checkpoint.snapshot import Fetched, Source
from auditor.findings import (
    MatchedPair,
    Renamed,
    TiedWeight,
    Unused,
)
from auditor.reconciler.loading.report import LoadReport
from auditor.report import Expected, FileTally, Observed, Report


def bert_base_chinese():
    """Clean; the figures are published ones: 206 tensors, 102,882,442 stored, 102,290,312 expected.

    The module rows go on below `encoder.layer.0`, whose 7,087,872 are 12*768^2 + 13*768.
    """
    of = 102_882_442
    layers = [
        line
        for n in range(12)
        for line in (
            row(f"bert.encoder.layer.{n}", 16, 7_087_872, 7_087_872, "equal", of=of, formula=LAYER),
            row(f"bert.encoder.layer.{n}.attention", 10, 2_363_904, 2_363_904, "equal", of=of),
            row(f"bert.encoder.layer.{n}.intermediate", 2, 2_362_368, 2_362_368, "equal", of=of),
            row(f"bert.encoder.layer.{n}.output", 4, 2_361_600, 2_361_600, "equal", of=of),
        )
    ]
    decoder = expected("cls.predictions.decoder.weight", 21128, 768, role=Role.TIED)
    embedding = "bert.embeddings.word_embeddings.weight"
    unused = (
        stored("bert.pooler.dense.bias", 768),
        stored("bert.pooler.dense.weight", 768, 768),
        stored("cls.seq_relationship.bias", 2),
        stored("cls.seq_relationship.weight", 2, 768),
    )
    return Report(
        requested="bert-base-chinese",
        model="google-bert/bert-base-chinese",
        commit=COMMIT,
        source=Source.BUNDLED,
        origin="rebuilt from names and shapes to the published header length, at no known commit",
        declared=("BertForMaskedLM",),
        target="BertForMaskedLM",
        model_type="bert",
        expected=Expected(
            by="closed-form",
            tensors=202,
            parameters=102_290_312,
            formula="V*D + L*D + 4*D + N*(12*D^2 + 13*D) + V + D^2 + 3*D",
            legend=(
                Symbol(letter="V", key="vocab_size", value=21128, default=False),
                Symbol(letter="D", key="hidden_size", value=768, default=False),
                Symbol(letter="L", key="max_position_embeddings", value=512, default=True),
                Symbol(letter="N", key="num_hidden_layers", value=12, default=False),
                Symbol(
                    letter="F", key="intermediate_size", value=3072, default=False, formula="4*D"
                ),
            ),
        ),
        observed=Observed(
            files=1,
            bytes=411_529_768,
            tensors=206,
            elements=of,
            parameters=of,
            trainable=of,
            by_dtype=(("F32", of),),
            by_file=(
                FileTally(
                    name="model.safetensors",
                    size=411_553_788,
                    tensors=206,
                    elements=of,
                    parameters=of,
                ),
            ),
        ),
        modules=(
            row("", 206, of, 102_290_312, "differs", of=of),
            row("bert", 199, 102_267_648, 101_677_056, "differs", of=of),
            row("bert.embeddings", 5, 16_622_592, 16_622_592, "equal", of=of),
            row(
                "bert.encoder", 192, 85_054_464, 85_054_464, "equal", of=of, formula=f"N*({LAYER})"
            ),
            row("bert.encoder.layer", 192, 85_054_464, 85_054_464, "equal", of=of),
            *layers,
            row("bert.pooler", 2, 590_592, 0, "unused", of=of),
            row("bert.pooler.dense", 2, 590_592, 0, "unused", of=of),
            row("cls", 7, 614_794, 613_256, "differs", of=of),
            row("cls.predictions", 5, 613_256, 613_256, "equal", of=of),
            row("cls.predictions.transform", 4, 592_128, 592_128, "equal", of=of),
            row("cls.seq_relationship", 2, 1_538, 0, "unused", of=of),
        ),
        findings=(
            Renamed(
                pairs=tuple(
                    MatchedPair(
                        stored=stored(f"{place}.LayerNorm.{old}", 768),
                        expected=expected(f"{place}.LayerNorm.{new}", 768),
                    )
                    for place in (
                        "bert.embeddings",
                        *(f"bert.encoder.layer.{n}.attention.output" for n in range(12)),
                        *(f"bert.encoder.layer.{n}.output" for n in range(12)),
                        "cls.predictions.transform",
                    )
                    for old, new in (("beta", "bias"), ("gamma", "weight"))
                ),
                reason="older names of a LayerNorm, which loading translates",
            ),
            TiedWeight(
                tensors=(decoder,),
                tied_to=(embedding,),
                reason="not stored, and need not be: it shares the values of another tensor",
            ),
            Unused(
                tensors=unused,
                used_by=("BertForPreTraining",),
                reason="BertForMaskedLM does not use it; BertForPreTraining does",
            ),
        ),
        unchecked=("the values of the tensors: headers hold names, dtypes and shapes",),
        load_report=LoadReport(unexpected=tuple(one.name for one in unused)),
        in_memory={one.name: (one.name,) for one in unused},
        residual=0,
        fetched=Fetched(),
    )

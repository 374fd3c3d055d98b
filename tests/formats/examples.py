"""Outcomes made by hand, for the tests of all formats."""

from math import prod

from auditor.analytic import ExpectedTensor, Role, Symbol
from auditor.downloader.snapshot import Fetched, Source
from auditor.errors import Reason
from auditor.reconciler.findings import (
    AbsentPart,
    BadConfig,
    BadHeader,
    BadIndex,
    BadLayout,
    BadSize,
    Beside,
    Bookkeeping,
    Buffer,
    Dispute,
    Disputed,
    Duplicate,
    MisShaped,
    Missing,
    New,
    Pair,
    Renamed,
    Tied,
    Twin,
    Unexpected,
    Unsafe,
    Unused,
    WrongDtype,
    WrongTotal,
)
from auditor.reconciler.load_report import LoadReport, Mismatch
from auditor.reconciler.modules import ModuleRow
from auditor.report import Expected, FileTally, Observed, Report, Unaudited
from auditor.tensors import Span, StoredTensor

COMMIT = "8f23c25b06e129b6c986331a13d8d025a92cf0ea"


def stored(name, *shape, dtype="F32", file="model.safetensors"):
    return StoredTensor(name, dtype, shape, prod(shape), file, Span(0, 4 * prod(shape)))


def expected(name, *shape, role=Role.PARAMETER, tied_to=None):
    return ExpectedTensor(name, shape, prod(shape), role, tied_to)


def row(prefix, tensors, parameters, expects, status, *, of, formula=None):  # noqa: PLR0913 - a row
    """All elements are trainable parameters in F32; `of` is the count of the whole model."""
    return ModuleRow(
        prefix=prefix,
        depth=prefix.count(".") + 1 if prefix else 0,
        tensors=tensors,
        elements=parameters,
        parameters=parameters,
        trainable=parameters,
        bytes=4 * parameters,
        share=parameters / of,
        expected=expects,
        difference=parameters - expects,
        formula=formula,
        status=status,
    )


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
            origin="closed-form",
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
                    Pair(
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
            Tied(
                tensors=(decoder,),
                to=(embedding,),
                reason="not stored, and need not be: it shares the values of another tensor",
            ),
            Unused(
                tensors=(
                    stored("bert.pooler.dense.bias", 768),
                    stored("bert.pooler.dense.weight", 768, 768),
                    stored("cls.seq_relationship.bias", 2),
                    stored("cls.seq_relationship.weight", 2, 768),
                ),
                used_by=("BertForPreTraining",),
                reason="BertForMaskedLM does not use it; BertForPreTraining does",
            ),
        ),
        unchecked=("the values of the tensors: headers hold names, dtypes and shapes",),
        load_report=LoadReport(
            unexpected=(
                "bert.pooler.dense.bias",
                "bert.pooler.dense.weight",
                "cls.seq_relationship.bias",
                "cls.seq_relationship.weight",
            )
        ),
        in_memory={
            f"cls.seq_relationship.{last}": (f"cls.seq_relationship.{last}",)
            for last in ("bias", "weight")
        }
        | {
            f"bert.pooler.dense.{last}": (f"bert.pooler.dense.{last}",)
            for last in ("bias", "weight")
        },
        residual=0,
        fetched=Fetched(),
    )


LAYER = "12*D^2 + 13*D"


def every_kind():
    """One finding of each kind, and one ignored.

    45 stored - 50 expected = -5: missing -12, new -6, unexpected 7, unused 9, mis-shaped 2, behind
    files -10, ignored 5.
    """
    return Report(
        requested="someone/every-kind@v2",
        model="someone/every-kind",
        commit="0123456789abcdef0123456789abcdef01234567",
        source=Source.HUB,
        origin="read from the Hub",
        declared=("BertForMaskedLM",),
        target="BertModel",
        model_type="bert",
        expected=Expected(
            origin="oracle", library="transformers 5.23.0", tensors=9, parameters=50, formula="50"
        ),
        observed=Observed(
            files=2,
            bytes=180,
            tensors=14,
            elements=45,
            parameters=45,
            trainable=40,
            by_dtype=(("F16", 5), ("F32", 40)),
        ),
        modules=(
            row("", 14, 45, 50, "differs", of=45),
            row("encoder", 14, 45, 50, "differs", of=45),
            *(row(f"encoder.{n}", 2, 6, 6, "equal", of=45) for n in (0, 1, 2, 10)),
            row("encoder.3", 2, 2, 14, "missing", of=45),
            row("encoder.4", 4, 19, 12, "differs", of=45),
        ),
        load_report=LoadReport(
            missing=("encoder.3.bias", "encoder.3.weight"),
            unexpected=("foo",),
            mismatched=(Mismatch("encoder.4.bias", (6,), (4,)),),
            raises="encoder.3.weight cannot be made of what is stored",
        ),
        in_memory={
            "foo": ("foo",),
            "encoder.3.bias": ("encoder.3.bias",),
            "encoder.3.weight": ("encoder.3.weight",),
            "encoder.1.gamma": ("encoder.1.weight",),
            "encoder.4.bias": ("encoder.4.bias",),
        },
        findings=(
            Unused(
                tensors=(stored("pooler.weight", 3, 3),),
                used_by=("BertForPreTraining", "BertModel"),
                reason="BertForMaskedLM does not use it; BertForPreTraining and BertModel do",
            ),
            Missing(
                tensors=(expected("encoder.3.bias", 4), expected("encoder.3.weight", 4, 2)),
                reason="the declared class needs it and no file stores it",
            ),
            New(tensors=(expected("classifier.weight", 2, 3),), reason="only the target uses it"),
            Unexpected(tensors=(stored("foo", 7),), reason="no class of this family has it"),
            Buffer(tensors=(stored("position_ids", 1, 8, dtype="I64"),), reason="not learned"),
            Bookkeeping(tensors=(stored("encoder.4.scales", 2),), reason="scales of a weight"),
            BadLayout(
                tensors=(stored("encoder.5.qweight", 2, 3, dtype="I32"),),
                reason="qweight (2, 3) holds 32/4 x 2 = 16 inputs, the architecture has 24",
            ),
            Duplicate(
                tensors=(stored("encoder.0.weight", 2, 3, file="b.safetensors"),),
                of=("encoder.0.weight",),
                reason="the same name is stored in a.safetensors as well",
            ),
            WrongDtype(
                tensors=(stored("encoder.4.weight", 5, dtype="F16"),),
                declared="F32",
                reason="stored as F16, the config declares F32",
            ),
            MisShaped(
                pairs=(
                    Pair(
                        stored=stored("encoder.4.bias", 6), expected=expected("encoder.4.bias", 4)
                    ),
                ),
                reason="stored as (6), the config implies (4)",
            ),
            Renamed(
                pairs=(
                    Pair(
                        stored=stored("encoder.1.gamma", 3),
                        expected=expected("encoder.1.weight", 3),
                    ),
                ),
                reason="an older name",
            ),
            Tied(
                tensors=(expected("decoder.weight", 2, 3, role=Role.TIED),),
                to=("encoder.0.weight",),
                reason="it shares the values of another tensor",
            ),
            Beside(files=("pytorch_model.bin",), reason="not of the audited set"),
            Disputed(
                target="BertModel",
                disputes=(
                    Dispute(
                        name="encoder.0.weight",
                        closed_form=expected("encoder.0.weight", 2, 3),
                        oracle=None,
                    ),
                    Dispute(
                        name="encoder.10.weight",
                        closed_form=expected("encoder.10.weight", 3, 2),
                        oracle=expected("encoder.10.weight", role=Role.TIED, tied_to="foo"),
                    ),
                ),
                reason="the closed form has them otherwise than transformers 5.23.0",
            ),
            BadHeader(
                file="c.safetensors",
                hidden=(expected("encoder.5.weight", 2, 5),),
                reason="the header is not JSON",
            ),
            BadIndex(
                file="model.safetensors.index.json",
                tensors=("encoder.6.bias", "encoder.6.weight"),
                reason="the index names them and no shard holds them",
            ),
            BadSize(file="a.safetensors", reason="8 + 100 + 180 bytes declared, 280 there"),
            WrongTotal(
                file="model.safetensors.index.json",
                reason="total_parameters is 46, the shards hold 45 parameters: +1",
            ),
            BadConfig(file="config.json", reason="hidden_size is 0"),
            Unsafe(
                file="pytorch_model.bin",
                reason="loading pytorch_model.bin would import posix.system('id')",
                imports=("posix.system('id')",),
            ),
            AbsentPart(file="model_index.json", folders=("vae",), reason="no file of it is there"),
            Twin(
                file="pytorch_model.bin",
                reason="pytorch_model.bin lacks 1 tensor that the audited files have: 'a'",
                tensors=("a",),
            ),
        ),
        ignored=(Unexpected(tensors=(stored("bar", 5),), reason="no class of this family has it"),),
        notes=("audited as BertModel, as asked",),
        unchecked=("quant_type: not one we know",),
        residual=0,
        fetched=Fetched(requests=6, bytes=48_123, seconds=0.4179),
    )


def gated():
    """Nothing is known but why."""
    return Unaudited(
        requested="meta-llama/Llama-2-7b-hf",
        reason=Reason.GATED,
        detail="meta-llama/Llama-2-7b-hf is gated: accept its licence on the Hub, then log in",
        fetched=Fetched(requests=1, bytes=312, seconds=0.1),
    )


def config_alone():
    """The expected side of twelve layers, and no weights to compare it with."""
    expects = ((LAYER, "", 0, 85_054_464), (f"N*({LAYER})", "encoder", 1, 85_054_464))
    layers = ((LAYER, f"encoder.{n}", 2, 7_087_872) for n in range(12))
    return Unaudited(
        requested="./config.json",
        model="./config.json",
        source=Source.FILE,
        origin="read from a file of this machine",
        declared=("BertModel",),
        target="BertModel",
        model_type="bert",
        expected=Expected(
            origin="closed-form", tensors=192, parameters=85_054_464, formula=f"N*({LAYER})"
        ),
        modules=tuple(
            ModuleRow(
                prefix=prefix,
                depth=depth,
                tensors=0,
                elements=None,
                parameters=None,
                trainable=None,
                bytes=None,
                share=None,
                expected=parameters,
                difference=None,
                formula=formula,
                status="unchecked",
            )
            for formula, prefix, depth, parameters in (*expects, *layers)
        ),
        reason=Reason.NO_WEIGHTS,
        detail="./config.json is a config alone: there are no weights to compare it with",
    )


def names_alone():
    """An index without any shard: names, and no shapes."""
    return Report(
        requested="some/folder",
        model="some/folder",
        source=Source.FOLDER,
        origin="read from a folder of this machine",
        target="BertModel",
        model_type="bert",
        expected=Expected(origin="closed-form", tensors=2, parameters=12, formula="3*D"),
        observed=Observed(
            files=0, bytes=None, tensors=2, elements=None, parameters=None, trainable=None
        ),
        modules=(
            ModuleRow(
                prefix="",
                depth=0,
                tensors=2,
                elements=None,
                parameters=None,
                trainable=None,
                bytes=None,
                share=None,
                expected=12,
                difference=None,
                formula="3*D",
                status="unchecked",
            ),
        ),
        unchecked=("shapes and dtypes: no shard of the index is here",),
        residual=None,
    )


# Each is one that a terminal, a spreadsheet, a markup language or a reader would take for its own.
HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\u202egnp.exe",
    "[bold]markup[/bold]",
    "[/]",
    ":smile:",
    "=cmd|'/c calc'!A1",
    "+1+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\rreturn",
    "line\nfeed",
    'quo"te,comma;semicolon',
    "{0-3}",
    "back\\slash",
    "nul\x00",
    "zero\u200bwidth",
    "line\u2028separator",
    "\ud800 lone surrogate",
    "weiß.中文.\N{GRINNING FACE}",
    "e" + "\u0301" * 100,
    "x" * 200,
    "</script><img src=x>",
    "  ",
    "",
)


def hostile():
    """Every text of the report is one that a stranger wrote to do harm."""
    of = len(HOSTILE)
    everything = " ".join(HOSTILE)
    return Report(
        requested=everything,
        model=HOSTILE[0] + "/" + HOSTILE[3],
        commit="\x1b[2J" + "0" * 36,
        source=Source.FOLDER,
        origin=everything,
        declared=HOSTILE,
        target=HOSTILE[2],
        model_type=HOSTILE[6],
        expected=Expected(
            origin="closed-form",
            tensors=0,
            parameters=0,
            formula=HOSTILE[6],
            legend=(Symbol(letter="=A", key=HOSTILE[0], value=-1, default=False),),
        ),
        observed=Observed(
            files=1,
            bytes=4 * of,
            tensors=of,
            elements=of,
            parameters=of,
            trainable=of,
            by_dtype=((HOSTILE[1], of),),
        ),
        modules=(
            row("", of, of, 0, "unexpected", of=of),
            *(row(name, 1, 1, 0, "unexpected", of=of) for name in HOSTILE if name),
        ),
        findings=(
            Unexpected(tensors=tuple(stored(name, 1) for name in HOSTILE), reason=everything),
        ),
        load_report=LoadReport(
            unexpected=HOSTILE,
            mismatched=tuple(Mismatch(name, (1,), ()) for name in HOSTILE),
            raises=everything,
        ),
        in_memory=dict.fromkeys(HOSTILE, HOSTILE),
        notes=(everything,),
        unchecked=(everything,),
        residual=0,
    )


def pipeline():
    """Two models of one repository, of which one has a finding and one no closed form."""
    stray = Unexpected(tensors=(stored("stray", 5),), reason="no class of this family has it")
    encoder = Report(
        requested="org/pipeline",
        component="text_encoder",
        target="CLIPTextModel",
        model_type="clip_text_model",
        expected=Expected(origin="closed-form", tensors=2, parameters=20, formula="V*D"),
        observed=_held("text_encoder/model.safetensors", tensors=3, parameters=25),
        modules=(row("", 3, 25, 20, "differs", of=25),),
        findings=(stray,),
        notes=("the variant fp16 is audited, text_encoder/model.fp16.safetensors",),
        unchecked=("values: only headers are read, no weight is",),
        residual=0,
    )
    unet = Unaudited(
        requested="org/pipeline",
        component="unet",
        target="UNet2DConditionModel",
        observed=_held("unet/diffusion_pytorch_model.safetensors", tensors=1, parameters=75),
        reason=Reason.UNKNOWN_ARCHITECTURE,
        detail="no closed form is known for 'UNet2DConditionModel', a class of diffusers",
    )
    return Report(
        requested="org/pipeline",
        model="org/pipeline",
        commit=COMMIT,
        source=Source.HUB,
        origin="read from the Hub",
        target="StableDiffusionPipeline",
        observed=_held("", tensors=4, parameters=100),
        findings=(AbsentPart(file="model_index.json", folders=("vae",), reason="not there"),),
        unchecked=("values: only headers are read, no weight is", f"unet: {unet.detail}"),
        residual=None,
        fetched=Fetched(requests=6, bytes=9_000, seconds=0.3),
        parts=(encoder, unet),
    )


def _held(file, *, tensors, parameters):
    """Tensors of F32 in one file, or in two that are not told apart."""
    tally = FileTally(
        name=file, size=None, tensors=tensors, elements=parameters, parameters=parameters
    )
    return Observed(
        files=1 if file else 2,
        bytes=4 * parameters,
        tensors=tensors,
        elements=parameters,
        parameters=parameters,
        trainable=parameters,
        by_dtype=(("F32", parameters),),
        by_file=(tally,) if file else (),
    )


EXAMPLES = {
    "bert-base-chinese": bert_base_chinese,
    "every-kind": every_kind,
    "gated": gated,
    "config-alone": config_alone,
    "names-alone": names_alone,
    "hostile": hostile,
    "pipeline": pipeline,
}

"""Outcomes made by hand, for the tests of all formats."""

from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.every_kind import every_kind
from support.outcomes.making import COMMIT, LAYER, expected, row, stored

from auditor.analytic import Symbol
from auditor.checkpoint.snapshot import Fetched, Source
from auditor.errors import Reason
from auditor.findings import (
    Missing,
    MissingComponent,
    Severity,
    Unexpected,
)
from auditor.reconciler.loading.report import LoadReport, Mismatch
from auditor.reconciler.rows import ModuleRow
from auditor.report import Diagnosis, Expected, FileTally, Observed, Report, Unaudited


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
            by="closed-form", tensors=192, parameters=85_054_464, formula=f"N*({LAYER})"
        ),
        modules=tuple(
            ModuleRow(prefix, depth, 0, None, None, parameters, None, formula, "unchecked")
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
        expected=Expected(by="closed-form", tensors=2, parameters=12, formula="3*D"),
        observed=Observed(
            files=0, bytes=None, tensors=2, elements=None, parameters=None, trainable=None
        ),
        modules=(ModuleRow("", 0, 2, None, None, 12, None, "3*D", "unchecked"),),
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
    "::stop-commands::x",
    "x##[error]y",
    "filler\u3164filler",
    "@octocat #1 GH-1",
    "a\\|b",
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
            by="closed-form",
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
        diagnosis=(
            Diagnosis(
                cause="config-field",
                severity=Severity.WARNING,
                summary=everything,
                fix=everything,
                fields=tuple((name, name, [name]) for name in HOSTILE),
                findings=(0,),
                evidence=HOSTILE,
            ),
        ),
        residual=0,
    )


def diagnosed():
    """Three layers of five parameters where the config has four; and a tensor of somebody's own."""
    lacking = tuple(expected(f"encoder.layer.3.{last}", size) for last, size in LAYER_OF_FIVE)
    layers = (row(f"encoder.layer.{n}", 2, 5, 5, "equal", of=16) for n in range(3))
    return Report(
        requested="org/short",
        model="org/short",
        commit=COMMIT,
        source=Source.HUB,
        origin="read from the Hub",
        declared=("BertModel",),
        target="BertModel",
        model_type="bert",
        expected=Expected(
            by="closed-form",
            tensors=8,
            parameters=20,
            formula="N*(D + 1)",
            legend=(
                Symbol(letter="N", key="num_hidden_layers", value=4, default=False),
                Symbol(letter="D", key="hidden_size", value=4, default=False),
            ),
        ),
        observed=_held("model.safetensors", tensors=7, parameters=16),
        modules=(
            row("", 7, 16, 20, "differs", of=16),
            row("encoder", 6, 15, 20, "differs", of=16),
            row("encoder.layer", 6, 15, 20, "differs", of=16),
            *layers,
            row("encoder.layer.3", 0, 0, 5, "missing", of=16),
            row("stray", 1, 1, 0, "unexpected", of=16),
        ),
        findings=(
            Missing(tensors=lacking, reason="the declared class needs it and no file stores it"),
            Unexpected(tensors=(stored("stray", 1),), reason="no class of this family has it"),
        ),
        diagnosis=(
            Diagnosis(
                cause="config-field",
                severity=Severity.ERROR,
                summary="num_hidden_layers is 4, the files hold 3",
                explains="2 names of 3",
                fix="set num_hidden_layers to 3 in config.json, or upload weights of a model "
                "with 4",
                fields=(("num_hidden_layers", 4, 3),),
                findings=(0,),
                evidence=("with num_hidden_layers = 3, no name is missing",),
                remaining=1,
            ),
        ),
        unchecked=("values: only headers are read, no weight is",),
        residual=0,
    )


LAYER_OF_FIVE = (("bias", 1), ("weight", 4))


def pipeline():
    """Two models of one repository, of which one has a finding and one no closed form."""
    stray = Unexpected(tensors=(stored("stray", 5),), reason="no class of this family has it")
    encoder = Report(
        requested="org/pipeline",
        component="text_encoder",
        target="CLIPTextModel",
        model_type="clip_text_model",
        expected=Expected(by="closed-form", tensors=2, parameters=20, formula="V*D"),
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
        target="UNet3DConditionModel",
        observed=_held("unet/diffusion_pytorch_model.safetensors", tensors=1, parameters=75),
        reason=Reason.UNKNOWN_ARCHITECTURE,
        detail="no closed form is known for 'UNet3DConditionModel', a class of diffusers",
    )
    return Report(
        requested="org/pipeline",
        model="org/pipeline",
        commit=COMMIT,
        source=Source.HUB,
        origin="read from the Hub",
        target="StableDiffusionPipeline",
        observed=_held("", tensors=4, parameters=100),
        findings=(
            MissingComponent(declared_in="model_index.json", folders=("vae",), reason="not there"),
        ),
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
    "diagnosed": diagnosed,
}

"""Law 18: two commands on a folder never contradict each other.

No good word is said over what was not read, or while anything else is wrong.
"""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.checkpoints import TINY, stored, stored_by
from support.diffusers_configs import COMPONENTS
from support.examples import examples
from support.faulty_files import FAULTS, sharded, sound, spoil
from support.pipelines import CLIP, encoders, model, text, written
from support.small_snapshots import snapshot_of

from auditor.analytic import Config, Role, catalogue, read_config
from auditor.analytic.diffusion import expect_diffusers
from auditor.audit.options import Options
from auditor.audit.pipeline import audit, diff
from auditor.cli.remedy import fix_command
from auditor.diagnosis.engine import UNCERTAIN
from auditor.diagnosis.permissions import Allow
from auditor.errors import FixError
from auditor.findings import AllZero
from auditor.fixing.of_folder import fix_folder, plan_for_folder
from auditor.fixing.plan import plan_fix
from auditor.formats import View, as_badge, fix_plan, verdict
from auditor.formats.as_json import document_of, outcome_from
from auditor.formats.registry import FORMATS
from auditor.options import AuditRequest

# --- good words --------------------------------------------------------------------------------

STORED = r"in the right shapes|named by the index|is known to be missing"
DONE = r"[Nn]othing else is wrong|audits clean"
VERDICT = re.compile(r"verdict(\W+|\W+value\W+)clean")
GOOD = re.compile(
    rf"{STORED}|{DONE}|[Nn]othing is wrong|all of them used|\bFine:|\(safe\b|\bOK\b|"
    rf"{VERDICT.pattern}|tensors (?P<all>[\d,]+)/(?P=all)"
)
PRAISE = re.compile(
    r"nothing (else )?is wrong|all of them|right shapes|(?<!not )\b(fine|safe|clean|OK|intact)\b"
    r"|\b(sound|verified|correct|complete|perfect|trustworthy|healthy)\b",
    re.IGNORECASE,
)
# Literals of JSON's keys and of styles, which no report shows as praise.
NEUTRAL = {"clean", "OK", "safe", "Fine"}
OF_REPORTS = Path(as_badge.__file__).parent
OF_OTHER_COMMANDS = {"doctor", "claims", "memory", "meanings", "symptoms"}


def texts(outcome, fix=None):
    """What every format shows of an outcome; styles and scripts of pages are left out."""
    said = {}
    for name, files in FORMATS.items():
        views = (View(), View(verbose=True)) if name == "terminal" else (View(),)
        for view in views:
            for file, content in files([outcome], view).items():
                said[name, file, view.verbose] = content
    stored_outcome = outcome_from(document_of(outcome))  # of a night's pages
    [said["night", "page", False]] = FORMATS["html"]([stored_outcome], View()).values()
    with_command, view = replace(outcome, fix_command=fix), View(width=10_000)
    for name in ("terminal", "html", "markdown"):
        [said[name, "with the command", False]] = FORMATS[name]([with_command], view).values()
    return {
        key: re.sub(r"<(style|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        for key, text in said.items()
    }


def good_words(said):
    return {(*key, found[0]) for key, text in said.items() for found in GOOD.finditer(text)}


def has_empty_parentheses(said):
    """Whether a text has () behind a space; a call such as merge_and_unload() is none."""
    return [key for key, text in said.items() if re.search(r"(?<!\w)\(\s*\)", text)]


FILES = st.tuples(
    st.sampled_from([sound, sharded]),
    st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=2, unique=True),
)


def spoilt(folder, made):
    make, names = made
    files = make()
    spoil(files, names)
    if not files:
        assume(condition=False)
    shutil.rmtree(folder, ignore_errors=True)
    return written(folder, files)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("law-18")


def test_a_sound_folder_has_its_good_words(place):
    for make in (sound, sharded):
        said = good_words(texts(audit(spoilt(place / "sound", (make, [])))))
        words = {word for *_, word in said}
        assert {"in the right shapes", "all of them used", "OK"} <= words
        assert any(re.fullmatch(r"tensors (\d+)/\1", word) for word in words)
        assert {"verdict=clean", 'verdict":"clean'} <= words


@examples(60)
@given(FILES)
def test_no_good_word_is_said_over_what_was_not_read_or_beside_an_alarm(place, made):
    folder = spoilt(place / "drawn", made)
    outcome = audit(folder)
    command = fix_command(outcome, None)
    said = texts(outcome, command)
    assert not has_empty_parentheses(said), made
    assert outcome.verdict != "clean", made
    words = {word for *_, word in good_words(said)}
    if outcome.unread:
        assert not words, (made, words)
    if any(FAULTS[name].hides for name in made[1]):
        words = {word for word in words if not re.fullmatch(r"tensors .*|\bFine:", word)}
        assert not words, (made, words)
    if {"missing", "mismatched"} & {one.kind for one in outcome.alarms}:
        assert not [word for word in words if re.fullmatch(STORED, word)], (made, words)
    if [word for word in words if re.fullmatch(DONE, word)]:
        assert after_fix(place, folder).verdict == "clean", (made, words)


def after_fix(place, folder):
    """The audit of what `audit fix --apply` writes if all changes are allowed."""
    plan = plan_for_folder(str(folder), None, tuple(Allow), lambda _: None)
    return audit(written_by(plan, place) if plan.plan.changes else str(folder))


def written_by(plan, place):
    """The path of the fixed folder."""
    shutil.rmtree(place / "fixed", ignore_errors=True)
    return str(fix_folder(plan, place / "fixed", say=lambda _: None))


OF_ENCODERS = sorted(FAULTS.keys() - {"two end tokens"})  # an encoder of a pipeline writes no text


@examples(20)
@given(st.lists(st.sampled_from(OF_ENCODERS), min_size=2, max_size=2))
def test_nor_over_components(place, names):
    """Each of two components is spoilt, and each alone would be one of a sound pipeline."""
    folders = {}
    for folder, name, files in zip(
        ("text_encoder", "text_encoder_2"), names, (model(CLIP), sound()), strict=True
    ):
        before = dict(files)
        spoil(files, [name])
        assume(files != before)  # another width of a BERT is that of the CLIP
        folders[folder] = files
    shutil.rmtree(place / "pipeline", ignore_errors=True)
    outcome = audit(written(place / "pipeline", encoders(**folders)))
    said = texts(outcome)
    assert not has_empty_parentheses(said), names
    assert outcome.verdict != "clean", names
    words = {word for *_, word in good_words(said) if not VERDICT.fullmatch(word)}  # of one alone
    if outcome.unread:
        assert not words, (names, words)
    assert not [word for word in words if re.fullmatch(rf"{STORED}|{DONE}|OK|tensors .*", word)]


def test_one_component_that_is_not_there_takes_the_good_word_from_the_other(tmp_path):
    files = encoders(text_encoder_2={"config.json": sound()["config.json"]})
    outcome = audit(written(tmp_path, files))
    words = {word for *_, word in good_words(texts(outcome))}
    assert not [word for word in words if not VERDICT.fullmatch(word)]  # of the other component
    assert "stored" in verdict.account(outcome)


@pytest.mark.parametrize("name", ["cut in its data", "such a pickle beside"])
def test_no_engine_is_said_to_load_what_was_not_read(name, tmp_path):
    assert [one.loads for one in audit(engines_asked(tmp_path / "sound", [])).engines] == [True]
    [verdict_] = audit(engines_asked(tmp_path / "spoilt", [name])).engines
    assert verdict_.loads is None


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "float32",
    "vocab_size": 32,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}


def engines_asked(folder, names):
    files = model(LLAMA)
    spoil(files, names)
    return AuditRequest(model=written(folder, files), engines=("vllm",))


def test_b_is_not_called_a_if_something_was_not_compared(tmp_path):
    plain = written(tmp_path / "plain", sound())
    assert diff(plain, written(tmp_path / "copy", sound())).summary.startswith("B is A: ")
    more = {**sound(), "sub/config.json": sound()["config.json"], "sub/x": b""}
    more |= {
        "sub/model.safetensors": sound()["model.safetensors"],
        "modules.json": text(
            [
                {
                    "idx": 0,
                    "name": "0",
                    "path": "",
                    "type": "sentence_transformers.models.Transformer",
                },
                {
                    "idx": 1,
                    "name": "1",
                    "path": "sub",
                    "type": "sentence_transformers.models.Transformer",
                },
            ]
        ),
    }
    compared = diff(plain, written(tmp_path / "more", more))
    assert compared.not_compared
    assert "B is A" not in compared.summary


def test_a_fix_is_not_said_to_end_clean_if_other_alarms_are_known(tmp_path):
    """Findings about numbers, and of engines, are none that a plan looks for."""
    files = sound()
    spoil(files, ["a prefix"])
    outcome = audit(written(tmp_path, files))
    assert fix_command(outcome, None).effect.endswith("then it audits clean")
    zeros = AllZero(tensors=(), reason="all numbers are 0")
    more = replace(outcome, findings=(*outcome.findings, zeros))
    assert fix_command(more, None).effect.endswith("then 1 finding remains")


def test_no_fix_is_named_for_a_config_that_the_folder_does_not_have(tmp_path):
    files, other = sound(), sound()
    spoil(files, ["a prefix"])
    spoil(other, ["another inner size"])
    folder = written(tmp_path / "model", files)
    request = AuditRequest(model=folder, config=written(tmp_path / "other", other))
    assert fix_command(audit(folder), None)
    assert fix_command(audit(request), None) is None


def test_every_word_of_praise_in_the_formats_is_one_of_the_list():
    """So that a new good sentence is held by the laws above: name it in GOOD."""
    paths = [path for path in OF_REPORTS.glob("*.py") if path.stem not in OF_OTHER_COMMANDS]
    literals = {(path.stem, text) for path in paths for text in literals_of(path)}
    unlisted = {
        (name, text)
        for name, text in literals
        if PRAISE.search(text) and not (GOOD.search(text) or text in NEUTRAL)
    }
    assert not unlisted


def literals_of(path):
    """The texts that a module makes sentences of: all but its docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.value


# --- two commands ------------------------------------------------------------------------------


@examples(60)
@given(FILES)
def test_audit_and_fix_recommend_the_same(place, made):
    folder = spoilt(place / "both", made)
    outcome = audit(folder)
    command = fix_command(outcome, None)
    try:
        plan = plan_for_folder(folder, None, (), lambda _: None)
    except FixError:
        assert command is None
        return
    require_one_remedy(outcome.diagnosis, plan.plan, made)
    allowed = [Allow(one.allow) for one in command.allows] if command else []
    assert (command is not None and not allowed) == bool(plan.plan.changes), made
    if command is not None:
        after = after_fix_alone(place, folder, allowed)
        promised = "audits clean" in command.effect
        assert promised == (after.verdict == "clean"), (made, command)
        assert len(after.alarms) < len(outcome.alarms) or after.verdict == "clean"


OF_OTHER_CAUSES = ("would be left", "find as much", "changes are allowed")


def require_one_remedy(diagnosis, plan, made):
    """Each cause of the plan has the audit's sentence, and the values that it sets or refuses."""
    planned = fix_plan.plan_as_json(plan, None, None)
    values = {
        ".".join(value["path"]): value.get("after")
        for file in planned["files"]
        for value in file["values"]
    }
    fixes = {(one.cause, one.fix): one for one in diagnosis}
    for one in planned["causes"]:
        cause = fixes[one["cause"], one["fix"]]
        assert all(values[key] == held for key, _, held in cause.fields), made
    for one in planned["left"]:
        cause = fixes[one["cause"], one["fix"]]
        if cause.fix.startswith("set ") and not one["allow"] and cause.cause == "config-field":
            is_said = one["why"] in cause.fix or one["why"] == UNCERTAIN  # law 10's second half
            assert is_said or any(why in one["why"] for why in OF_OTHER_CAUSES), (made, one)


def component(config):
    """The tensors of a component of diffusers that stores its buffers too."""
    expected = expect_diffusers(Config(values=config), config["_class_name"])
    buffers = (one for one in expected.tensors if one.role is Role.BUFFER)
    return [*stored_by(expected), *(stored(one.name, one.shape) for one in buffers)]


CONFIGS = [
    *({"_class_name": name, **config} for name, config in COMPONENTS.items()),
    *({**TINY, "architectures": [name]} for name in ("BertModel", "BertForMaskedLM")),
    CLIP,
]


@examples(100)
@given(st.data())
def test_a_plan_has_the_remedies_of_the_audit_whatever_the_config_says(data):
    config = data.draw(st.sampled_from(CONFIGS))
    numbers = sorted(key for key, value in config.items() if type(value) is int and value)
    keys = data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=3, unique=True))
    declared = {key: data.draw(st.sampled_from([config[key] * 2, config[key] + 1])) for key in keys}
    is_component = "_class_name" in config
    tensors = component(config) if is_component else stored_by(expected_of(config))
    shot = snapshot_of(tensors)
    text = replace(shot.config, content=json.dumps(config | declared).encode())
    plan = plan_fix(replace(shot, config=text), Options(requested="small"))
    require_one_remedy(plan.before.diagnosis, plan, (config, declared))


def expected_of(config):
    read = read_config("config.json", json.dumps(config).encode())
    return catalogue.expect(read, read.architectures[0])


def after_fix_alone(place, folder, allowed):
    """The audit of what the command that the report names writes."""
    plan = plan_for_folder(str(folder), None, allowed, lambda _: None)
    return audit(written_by(plan, place))

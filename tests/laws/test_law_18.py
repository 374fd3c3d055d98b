"""Law 18: two commands on a folder never contradict each other.

No good word is said over what was not read, or while anything else is wrong.
"""

import ast
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.faulty_files import FAULTS, sharded, sound, spoil
from support.pipelines import CLIP, encoders, model, written

from auditor.audit.pipeline import audit
from auditor.cli.remedy import fix_command
from auditor.diagnosis.permissions import Allow
from auditor.errors import FixError
from auditor.fixing.of_folder import fix_folder, plan_for_folder
from auditor.formats import View, as_badge, fix_plan, verdict
from auditor.formats.registry import FORMATS

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
OF_OTHER_COMMANDS = {"doctor", "claims", "memory", "meanings"}


def texts(outcome, fix=None):
    """What every format shows of an outcome; styles and scripts of pages are left out."""
    said = {}
    for name, files in FORMATS.items():
        views = (View(), View(verbose=True)) if name == "terminal" else (View(),)
        for view in views:
            for file, text in files([outcome], view).items():
                said[name, file, view.verbose] = text
    view = View(fix=fix, width=10_000)
    [said["terminal", "with the command", False]] = FORMATS["terminal"]([outcome], view).values()
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
    """The audit of a copy in which `audit fix --apply` has done all that may be allowed."""
    copy = place / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    plan = plan_for_folder(str(copy), None, tuple(Allow), lambda _: None)
    if plan.plan.changes:
        fix_folder(plan, in_place=False, say=lambda _: None)
    return audit(str(copy))


@examples(20)
@given(st.lists(st.sampled_from(sorted(FAULTS)), min_size=2, max_size=2))
def test_nor_over_components(place, names):
    """Each of two components is spoilt, and each alone would be one of a sound pipeline."""
    folders = {}
    for folder, name, files in zip(
        ("text_encoder", "text_encoder_2"), names, (model(CLIP), sound()), strict=True
    ):
        spoil(files, [name])
        folders[folder] = files
    shutil.rmtree(place / "pipeline", ignore_errors=True)
    outcome = audit(written(place / "pipeline", encoders(**folders)))
    said = texts(outcome)
    assert not has_empty_parentheses(said), names
    assert outcome.verdict != "clean", names
    words = {word for *_, word in good_words(said)}
    if outcome.unread:
        assert not words, (names, words)
    assert not [word for word in words if re.fullmatch(rf"{STORED}|{DONE}|OK|tensors .*", word)]


def test_one_component_that_is_not_there_takes_the_good_word_from_the_other(tmp_path):
    files = encoders(text_encoder_2={"config.json": sound()["config.json"]})
    outcome = audit(written(tmp_path, files))
    words = {word for *_, word in good_words(texts(outcome))}
    assert not [word for word in words if not VERDICT.fullmatch(word)]  # of the other component
    assert "stored" in verdict.account(outcome)


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
    remedies = {(one.cause, one.fix) for one in outcome.diagnosis}
    planned = fix_plan.plan_as_json(plan.plan, None)
    for one in (*planned["causes"], *planned["left"]):
        assert (one["cause"], one["fix"]) in remedies, made
    for one in outcome.diagnosis:
        written_values = {
            ".".join(value["path"]): value["after"]
            for file in planned["files"]
            for value in file["values"]
            if "after" in value
        }
        left = [each for each in planned["left"] if each["cause"] == one.cause]
        for key, _, held in one.fields:
            if plan.plan.changes and not left:
                assert written_values[key] == held, made
    refusals = [one["why"] for one in planned["left"] if not one["allow"]]
    recommended = [one.fix for one in outcome.diagnosis if one.fix.startswith("set ")]
    if recommended and refusals and not plan.plan.changes:
        is_said = any(why in fix for why in refusals for fix in recommended)
        others = ("would be left", "find as much", "changes are allowed")  # of other causes
        is_left = any(other in why for why in refusals for other in others)
        assert is_said or is_left, (made, recommended, refusals)
    assert (command is not None) == bool(plan.plan.changes), made
    if command is not None:
        after = after_fix_alone(place, folder)
        promised = "audits clean" in command[1]
        assert promised == (after.verdict == "clean"), (made, command)
        assert len(after.alarms) < len(outcome.alarms) or after.verdict == "clean"


def after_fix_alone(place, folder):
    """The audit of a copy after the command that the report names."""
    copy = place / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    fix_folder(
        plan_for_folder(str(copy), None, (), lambda _: None), in_place=False, say=lambda _: None
    )
    return audit(str(copy))

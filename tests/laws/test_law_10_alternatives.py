"""Law 10's second half: a stated value is the only one that fits; else all that fit are listed.

The search here is another one than the diagnosis': it tries numbers near a value and in proportion
to it, alone and together with numbers of the same object, and compares all names and shapes.
"""

from importlib import import_module
from itertools import product

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.bert_configs import config_of
from support.checkpoints import stored_by
from support.examples import examples
from support.small_snapshots import snapshot_of

from auditor.analytic import Config, catalogue
from auditor.analytic.config_keys import changed, every_key, name_of, parent_of
from auditor.analytic.families import FILES
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.diagnosis.permissions import Allow
from auditor.errors import CheckpointError, SourceError
from auditor.fixing.plan import plan_fix

OPTIONS = Options(requested="drawn")
TYPES = [one for one in catalogue.model_types() if one in FILES and one != "transformer-2017"]
WIDTHS_OF_HEADS = {"head_dim", "d_kv", "kv_channels"}  # taken as right if the config states them
_MOST_PARTNERS = 5


def shapes_of(config, target):
    """The names and shapes that a config implies; None if no model can be built of it."""
    try:
        expected = catalogue.expect(Config(values=config), target)
    except (CheckpointError, SourceError):
        return None
    return None if expected.faults else {one.name: one.shape for one in expected.needed}


def near(value):
    others = {value + 1, value - 1, 2 * value, 3 * value}
    others |= {value // n for n in (2, 3) if value % n == 0}
    return sorted(one for one in others if one > 0 and one != value)


def others_that_fit(config, target, path, shapes):
    """Other values of a number with which the config implies the same tensors."""
    keys = {one.path: one for one in every_key(config)}
    value = keys[path].value
    partners = [
        one.path
        for one in keys.values()
        if type(one.value) is int and one.path != path and one.parent == parent_of(path)
        if one.default or one.name not in WIDTHS_OF_HEADS
    ][:_MOST_PARTNERS]
    several = [{path: other} for other in near(value)]
    for partner, other in product(partners, near(value)):
        several += [{path: other, partner: more} for more in near(keys[partner].value)]
    return [one for one in several if shapes_of(changed(config, one), target) == shapes]


def has_whole_patches(config, path):
    """Whether an image is a number of patches, as in every published model."""
    keys = {one.path: one for one in every_key(config)}
    side, parent = keys[path].value, parent_of(path)
    patches = [one.value for one in keys.values() if one.parent == parent and "patch" in one.name]
    return all(side % one == 0 for one in patches if type(one) is int and one > 0)


@st.composite
def spoiled(draw):
    """A class, the config of its files, and a config that states other numbers."""
    model_type = draw(st.sampled_from(TYPES))
    target = draw(st.sampled_from(catalogue.siblings(model_type)))
    drawn = import_module(f"support.strategies.{FILES[model_type]}").VALUES
    values = draw(drawn.get(target, drawn[model_type]))
    true = {**values, "model_type": model_type, "architectures": [target]}
    numbers = [one for one in every_key(true) if type(one.value) is int and one.value > 0]
    assume(numbers)
    heads = [one for one in numbers if "head" in one.name or "group" in one.name]
    numbers = draw(st.sampled_from([numbers, heads or numbers]))  # heads leave most choices
    keys = draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=2, unique=True))
    declared = changed(true, {one.path: draw(st.sampled_from(near(one.value))) for one in keys})
    return target, true, declared


@settings(examples(40), suppress_health_check=list(HealthCheck))
@given(spoiled())
def test_a_stated_value_is_the_only_one_that_fits(drawn):
    target, true, declared = drawn
    shapes = shapes_of(true, target)
    assume(shapes and shapes_of(declared, target) != shapes)
    tensors = stored_by(catalogue.expect(config_of(**true), target))
    assume(examine(snapshot_of(tensors, **true), OPTIONS).verdict == "clean")
    snapshot = snapshot_of(tensors, **declared)
    report = examine(snapshot, OPTIONS)
    causes = [one for one in report.diagnosis if one.cause in {"config-field", "other-size"}]
    if len(causes) != 1 or causes != list(report.diagnosis) or " of " in causes[0].explains:
        return
    [found] = causes
    stated = {path: held for path, _, held in found.fields}
    for one in found.alternatives:
        assert shapes_of(changed(declared, {**stated, **one}), target) == shapes, found.summary
    if found.alternatives and "others" not in found.summary:
        numbers = {one.path: one.value for one in every_key(true)}
        readings = [{**stated, **one}.items() for one in found.alternatives]
        assert any(all(numbers.get(*one) == one[1] for one in each) for each in readings)
    if found.cause == "config-field":
        assert ("the shapes do not decide" in found.summary) == bool(found.alternatives)
    for path, held in stated.items():
        if type(held) is int and held > 0:
            config = changed(declared, {**stated, **dict(*found.alternatives[:1])})
            fitting = others_that_fit(config, target, path, shapes)
            if name_of(path).endswith("image_size"):
                fitting = [one for one in fitting if has_whole_patches(changed(config, one), path)]
            assert not fitting, (found.summary, fitting)
    if found.alternatives:
        assert not plan_fix(snapshot, OPTIONS, allowed=tuple(Allow)).changes, found.summary

"""`audit fix` of what transformers wrote and somebody spoiled: the real command and loader."""

import json

import pytest
from support.running import run
from support.spoiled_folders import WAYS, all_bytes, data_digests, loading_faults, saved

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder for each model, written once."""
    place, made = tmp_path_factory.mktemp("sound"), {}

    def of(family, *, sharded):
        name = f"{family}-{sharded}"
        if name not in made:
            made[name] = saved(family, place / name, sharded=sharded)
        return made[name]

    return of


@pytest.fixture
def spoiled(sound, tmp_path):
    """A folder, spoiled in one way."""

    def of(way):
        from shutil import copytree  # noqa: PLC0415 - beside its use

        folder = copytree(sound(way.family, sharded=way.sharded), tmp_path / "model")
        way.spoil(folder)
        return folder

    return of


@pytest.mark.parametrize("name", WAYS)
def test_a_fix_is_planned_then_applied_and_loads_without_warnings(name, spoiled):
    way = WAYS[name]
    folder = spoiled(way)
    allowed = ("--allow", way.allow) if way.allow else ()
    before, data = all_bytes(folder), data_digests(folder)
    planned = run("fix", str(folder), *allowed)
    assert (planned.returncode, all_bytes(folder)) == (1, before), planned.stdout + planned.stderr
    assert way.says in planned.stdout
    command = f"audit fix {folder} --apply"
    screen = " ".join(run(str(folder), env={"COLUMNS": "300"}).stdout.split())
    assert (command in screen) == (not way.allow)
    done = run("fix", str(folder), "--apply", "--format", "json", *allowed)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads(done.stdout)
    fixed = folder.with_name("model.fixed")
    assert (plan["written"], plan["after"]) == (str(fixed), {"verdict": "clean", "findings": 0})
    assert run(str(fixed), "--quiet").returncode == 0
    assert loading_faults(way.family, fixed) == {}
    assert (all_bytes(folder), data_digests(fixed)) == (before, data)
    unchanged = before.keys() - {file["file"] for file in plan["files"]}
    after = all_bytes(fixed)
    assert {name: after[name] for name in unchanged} == {name: before[name] for name in unchanged}
    assert run("fix", str(fixed), "--apply").returncode == 0
    assert not folder.with_name("model.fixed.fixed").exists()


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.allow])
def test_a_change_that_needs_permission_waits_for_it(name, spoiled):
    way = WAYS[name]
    folder = spoiled(way)
    before = all_bytes(folder)
    done = run("fix", str(folder), "--apply")
    assert (done.returncode, all_bytes(folder)) == (1, before), done.stdout + done.stderr
    assert f"--allow {way.allow}" in done.stdout
    done = run("fix", str(folder), "--apply", "--format", "json")
    [cause] = json.loads(done.stdout)["left"]
    assert (cause["tier"], cause["allow"]) == ("needs-your-word", [way.allow])
    assert all(cause["consequences"])
    others = ("tie-head", "labels", "layers", "experts", "class")
    other = [part for one in others if one != way.allow for part in ("--allow", one)]
    assert run("fix", str(folder), "--apply", *other).returncode == 1
    assert all_bytes(folder) == before

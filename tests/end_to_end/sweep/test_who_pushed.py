"""Who pushed a commit with new findings: which models are asked about, and what reports show."""

import csv
import json
import os
from collections import Counter

import pytest
from support.hub import EndlessBody, Says, Stall, TooMany, WrongJson
from support.running import run
from support.sweep_models import FAULTS, healthy

from auditor.downloader import retry
from auditor.sweep import authors, runner
from auditor.sweep.rate_limits import Bounds
from auditor.sweep.settings import ModelSelection
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import Store

OURS = ModelSelection(author="sweep")
BROKEN = FAULTS["unexpected"]
TERMINAL = '=1+1\x1b[2J<b>"&; ::error::'


def asked(hub):
    """The models whose commits were asked for, and how often."""
    return Counter(one.path.split("/")[4] for one in hub.log if "/commits/" in one.path)


def known(settings, night):
    with Store.open(settings.output.store) as store:
        return {one.model: one.commit_authors for one in store.results(night)}


def command(folder, *words):
    done = run(*words, cwd=folder, env={**os.environ, "NO_COLOR": "1"})
    return done.returncode, done.stderr


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.fixture
def two_nights(at_hub, tmp_path):
    """Two nights by the command: o/moved and o/hostile break in the second, o/open before."""
    for name in ("moved", "hostile", "clean"):
        at_hub.add(f"o/{name}", healthy(1))
    at_hub.add("o/open", BROKEN(2))
    assert command(tmp_path, "sweep", "--author", "o", "--night", "2026-11-20")[0] == 1
    first = asked(at_hub)
    at_hub.reset_log()
    at_hub.push("o/moved", BROKEN(1), authors=["alice", "bob"])
    at_hub.push("o/hostile", BROKEN(1), authors=[TERMINAL])
    at_hub.push("o/clean", healthy(1), authors=["carol"])
    assert command(tmp_path, "sweep", "--author", "o", "--night", "2026-11-21")[0] == 1
    return first, asked(at_hub)


def test_only_models_with_new_findings_are_asked_about(two_nights):
    assert two_nights == ({"open": 1}, {"moved": 1, "hostile": 1})


def test_tables_summary_page_and_terminal_name_who_pushed(two_nights, tmp_path):
    del two_nights
    code, said = command(tmp_path, "report", "-o", "out")
    expected = {"o/clean": "", "o/moved": "alice; bob", "o/open": "o"}
    models = {row["model"]: row["commit_authors"] for row in rows(tmp_path / "out/models.csv")}
    shown = models.pop("o/hostile")
    assert (code, models) == (1, expected)
    assert shown.isprintable()
    assert shown.startswith("'=1+1")
    changed = {row["model"]: row["commit_authors"] for row in rows(tmp_path / "out/changes.csv")}
    assert changed == {"o/clean": "", "o/moved": "alice; bob", "o/hostile": shown}
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    listed = {one["model"]: one["commit_authors"] for one in summary["news"]["listed"]}
    assert listed == {"o/moved": "alice; bob", "o/hostile": TERMINAL}
    page = (tmp_path / "out/index.html").read_text()
    assert "pushed by <bdi>alice; bob</bdi> on 2024-01-01 00:04 UTC" in page
    assert "<b>" not in page
    [line] = [line for line in said.splitlines() if "o/moved" in line]
    assert line.endswith("(pushed by alice; bob)")
    assert all(line.isprintable() for line in said.splitlines())


REFUSED = {
    "404": Says(status=404),
    "429": TooMany(reset=0),
    "silence": Stall(),
    "endless": EndlessBody(),
    "other commit": WrongJson(value=[{"id": "b" * 40, "authors": [{"user": "eve"}]}]),
    "numbers": WrongJson(value=[{"id": "b" * 40, "authors": [{"user": 5}]}]),
}


@pytest.mark.parametrize("fault", REFUSED.values(), ids=REFUSED)
def test_who_pushed_stays_unknown_if_the_hub_does_not_say(fault, at_hub, settings, monkeypatch):
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(authors, "_BOUNDS", Bounds("one commit", 0.2, 1_000_000))
    at_hub.add("sweep/a", BROKEN(1))
    at_hub.misbehave(path="*/commits/*", fault=fault)
    swept = runner.sweep(settings(OURS), night="n1")
    assert (swept.audited, swept.night.night, known(settings(OURS), "n1")) == (
        1,
        "n1",
        {"sweep/a": None},
    )
    with Store.open(settings(OURS).output.store) as store:
        assert store.night("n1").finished


def test_a_sweep_without_network_after_its_audits_ends_as_it_would(at_hub, settings, monkeypatch):
    at_hub.add("sweep/a", BROKEN(1))
    audit = runner._audit  # noqa: SLF001 - the point at which the network goes

    def then_offline(*given):
        count = audit(*given)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        return count

    monkeypatch.setattr(runner, "_audit", then_offline)
    runner.sweep(settings(OURS), night="n1")
    assert known(settings(OURS), "n1") == {"sweep/a": None}
    assert not asked(at_hub)


def test_a_sweep_that_is_stopped_between_two_answers_asks_for_the_others(
    at_hub, settings, monkeypatch
):
    names = [f"sweep/m{n}" for n in range(5)]
    for n, name in enumerate(names):
        at_hub.add(name, BROKEN(n))
    record = StoreWriter.record_authors

    def stopping(ledger, model, *given):
        if model == names[2]:
            raise KeyboardInterrupt
        record(ledger, model, *given)

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "record_authors", stopping)
        with pytest.raises(KeyboardInterrupt):
            runner.sweep(settings(OURS), night="n1")
    at_hub.reset_log()
    runner.sweep(settings(OURS), night="n1")
    assert asked(at_hub) == dict.fromkeys(["m2", "m3", "m4"], 1)
    assert known(settings(OURS), "n1") == dict.fromkeys(names, "sweep")


def test_a_night_asks_about_so_many_commits_with_errors_first(at_hub, settings, monkeypatch):
    monkeypatch.setattr(authors, "MOST", 2)
    for n, kind in enumerate(("unexpected", "unexpected", "missing")):
        at_hub.add(f"sweep/m{n}", FAULTS[kind](n))
    for _ in range(2):  # a night that is swept again asks for no more
        runner.sweep(settings(OURS), night="n1")
        assert asked(at_hub) == {"m2": 1, "m0": 1}

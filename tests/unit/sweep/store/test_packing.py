"""What models have in common is kept once, and each is read as if it were kept alone."""

import json
import sqlite3
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nightly_stores import VERSIONS, plain, recorded
from support.sweep_models import healthy
from support.sweep_stores import contents

from auditor.errors import StoreError
from auditor.sweep import runner
from auditor.sweep.reporting.night import Wanted, write_night
from auditor.sweep.settings import ModelSelection
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import SelectedModel
from auditor.sweep.store.schema import (
    Shared,
    StoredObject,
    compress_text,
    decompress_text,
    digest_of,
    merged_object,
)

OURS = ModelSelection(author="sweep")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(whole=st.dictionaries(st.text(max_size=3), JSON), data=st.data())
def test_a_split_object_is_merged_in_its_own_order(whole, data):
    keys = data.draw(st.sets(st.sampled_from([*whole]))) if whole else set()
    own = {name: value for name, value in reversed(whole.items()) if name in keys}
    rest = {name: None if name in keys else value for name, value in whole.items()}
    packed = [compress_text(json.dumps(one).encode()) for one in (own, rest)]
    assert list(merged_object(*packed).items()) == list(whole.items())
    assert merged_object(compress_text(json.dumps(whole).encode()), None) == whole


def fine_tunes(hub, count):
    """So many models of two bases, each with the config of its own that training writes."""
    for number in range(count):
        files = healthy(number % 2)
        config = {**json.loads(files["config.json"]), "_name_or_path": f"/runs/{number}"}
        hub.add(f"sweep/m{number}", {**files, "config.json": json.dumps(config).encode()})


@pytest.mark.slow
def test_of_fine_tunes_the_headers_and_the_outcome_are_kept_once_a_base(at_hub, settings):
    fine_tunes(at_hub, 12)
    runner.sweep(settings(OURS), night="n1")
    kept = contents(settings(OURS).output.store)
    assert (len(kept["outcomes"]), len(kept["snapshots"])) == (12, 12)
    used = {row["shared"] for name in ("outcomes", "snapshots") for row in kept[name]}
    assert used == {row["digest"] for row in kept["contents"]}
    assert len(used) == 4
    for row in kept["contents"]:
        assert digest_of(decompress_text(row["content"])) == row["digest"]


# --- by hand ------------------------------------------------------------------------------------


@contextmanager
def ledger_of(path, *names):
    with StoreWriter.open(path) as ledger:
        night = ledger.begin("n1", "all", VERSIONS)
        plan = ledger.new_plan("n1")
        ledger.add(night, plan, [SelectedModel(name, "a" * 40, name) for name in names])
        yield ledger, ledger.freeze("n1", plan)


def sharing(name, rest=b'{"verdict":"clean","model":null}'):
    stored_outcome = StoredObject(
        compress_text(json.dumps({"model": name}).encode()),
        Shared(digest_of(rest), compress_text(rest)),
    )
    return recorded(plain(name))._replace(stored_outcome=stored_outcome)


def test_an_outcome_and_what_it_shares_are_written_together_or_not_at_all(tmp_path):
    path = tmp_path / "sweep.sqlite"
    unwritable = StoredObject(b"own", Shared(b"digest", object()))
    with ledger_of(path, "o/a") as (ledger, night):
        with pytest.raises(sqlite3.Error, match="not supported"):
            ledger.record(night, "o/a", "a" * 40, sharing("o/a"), snapshot=unwritable)
        assert ledger.left(night) == 1
    assert contents(path)["contents"] == contents(path)["outcomes"] == []


def test_a_row_without_its_shared_content_is_reported_as_damage(tmp_path):
    path = tmp_path / "sweep.sqlite"
    with ledger_of(path, "o/a") as (ledger, night):
        ledger.record(night, "o/a", "a" * 40, sharing("o/a"))
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM contents")
        database.commit()
    with pytest.raises(StoreError, match=r"the store '.*sweep.sqlite' is damaged: "):
        write_night(path, wanted=Wanted(folder=tmp_path / "out"))

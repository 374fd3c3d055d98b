"""The audit of one model: what it reads at the same time, and the stored form of its outcome."""

import threading
from contextlib import closing

import pytest
from support.sweep_models import FAULTS

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.hub_listing import Listing
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.sweep import one_model
from auditor.sweep.one_model import Auditor, recorded
from auditor.sweep.rate_limits import RateLimiter
from auditor.sweep.settings import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.store.schema import merged_object


def test_the_columns_are_those_of_the_json():
    files = FAULTS["missing"](3)
    weights = files["model.safetensors"]
    header = weights[: 8 + int.from_bytes(weights[:8], "little")]
    snapshot = Snapshot(
        model="o/n",
        commit="a" * 40,
        source=Source.HUB,
        origin="read from a test",
        files=tuple(RepoFile(name=name, size=None) for name in sorted(files)),
        config=TextFile(name="config.json", content=files["config.json"]),
        headers=(WeightHeader(name="model.safetensors", size=len(weights), prefix=header),),
    )
    record = recorded(examine(snapshot, Options(requested="o/n")))
    kept = record.stored_outcome
    value = merged_object(kept.content, kept.shared and kept.shared.content)
    severities = [one["severity"] for one in value["findings"]]
    assert record.summary._asdict() == {
        **{name: value[name] for name in ("verdict", "reason", "residual")},
        "errors": severities.count("error"),
        "warnings": severities.count("warning"),
        "blind": 0,
        "tensors": value["observed"]["tensors"],
    }


@pytest.mark.parametrize("companions", [False, True])
def test_the_config_of_a_model_is_read_with_its_weights(companions, monkeypatch):
    """In turn the first of the two reads would never see the second begin."""
    header, seen = threading.Event(), []

    def read(model, _listing, _session, _choose, *, pool, patient):
        assert patient
        config = pool.submit(header.wait, 10)
        pool.submit(header.set)
        seen.append(config.result())
        return Snapshot(model=model.id, commit=None, source=Source.HUB, origin="", files=())

    listing = Listing(model_id="m", commit="0" * 40, files=())
    monkeypatch.setattr(one_model.hub, "fetch_listing", lambda _model, _session: listing)
    monkeypatch.setattr(one_model.hub, "read_from_listing", read)
    with closing(Auditor(Policy(companions=companions), None, RateLimiter())) as auditor:
        done = auditor.audit(Waiting("m", "0" * 40, None, None))
    assert (done.model, seen) == ("m", [True])

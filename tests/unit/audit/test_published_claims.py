"""Published sizes in an audit: who is told of them, and what stays silent."""

import json

from msgspec.structs import replace
from support.builders import safetensors_bytes
from support.packed_models import packed
from support.published_configs import published

from auditor.analytic import Role, catalogue
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import (
    PublishedText,
    RepoFile,
    Snapshot,
    Source,
    TextFile,
    WeightHeader,
)
from auditor.findings import ClaimedSize, HubCount, Severity
from auditor.findings.ignore import Ignore

PARAMETERS = 8_030_261_248  # of Llama-3.1-8B, as its card has it
FILE = "model.safetensors"


def llama(name="meta-llama/Llama-3.1-8B", said=(), **changes) -> Snapshot:
    """All tensors of it in one file, as the Hub would list it."""
    config = published("Llama-3.1-8B")
    tensors = catalogue.expect(config, "LlamaForCausalLM").tensors
    table = {one.name: ("BF16", one.shape) for one in tensors if one.role is Role.PARAMETER}
    values = {**config.values, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    content = json.dumps(values).encode()
    known = Snapshot(
        model=name,
        commit="a" * 40,
        source=Source.HUB,
        origin="",
        files=(RepoFile(name="config.json", size=None), RepoFile(name=FILE, size=None)),
        config=TextFile(name="config.json", content=content),
        headers=(WeightHeader(name=FILE, size=None, prefix=safetensors_bytes(table, data=False)),),
        published=tuple(PublishedText(name=key, text=text) for key, text in said),
    )
    return replace(known, **changes)


def told(snapshot, **options):
    report = examine(snapshot, Options(requested=snapshot.model, **options))
    assert report.residual == 0
    return report, [one for one in report.findings if isinstance(one, HubCount | ClaimedSize)]


def total(number):
    return (("safetensors.total", str(number)),)


def test_a_right_number_is_confirmed_without_an_alarm():
    report, found = told(llama(said=total(PARAMETERS)))
    assert found == []
    assert [(one.where, one.claim, one.verdict) for one in report.claims] == [
        ("name", 8 * 10**9, "confirmed to its rounding"),
        ("hub", PARAMETERS, "confirmed"),
    ]


def test_a_name_of_another_size_is_an_info_and_no_alarm():
    report, [found] = told(llama("someone/llama-70B"))
    assert (found.severity, found.claim, found.actual) == (Severity.INFO, 70 * 10**9, PARAMETERS)
    assert report.verdict == "clean"


def test_the_number_of_the_hub_for_packed_weights_is_explained_without_an_alarm():
    report, found = told(packed(llama("someone/Llama-3.1-8B-GPTQ"), "gptq", 4, 128))
    assert found == []  # nobody says a number
    elements = report.observed.elements
    assert round(elements / 10**9, 2) == 1.99  # as the Hub shows for such uploads
    shown = packed(llama("someone/Llama-3.1-8B-GPTQ", total(elements)), "gptq", 4, 128)
    report, [found] = told(shown)
    assert (found.severity, found.claim, found.actual) == (Severity.INFO, elements, PARAMETERS)
    assert "packed" in found.reason
    assert report.verdict == "clean"


def test_a_number_of_the_hub_that_is_of_no_count_is_a_warning():
    snapshot = llama(said=total(3_000_000_000))
    report, [found] = told(snapshot)
    assert (found.severity, found.claim, found.actual) == (Severity.WARNING, 3 * 10**9, PARAMETERS)
    assert (report.verdict, report.diagnosis) == ("findings", ())
    report, found = told(snapshot, ignore=(Ignore.parse("hub-count"),))
    assert (report.verdict, found) == ("clean", [])


def test_a_model_without_published_numbers_has_no_claims(subtests):
    for changes in [
        {"model": "/home/me/llama-70B", "commit": None, "source": Source.FOLDER},
        {"model": "someone/llama-70B-lora"},
        {"published": (PublishedText(name="cardData.size", text="10K<n<100K"),)},
    ]:
        with subtests.test(changes=changes):
            assert told(llama(**changes))[1] == []


def test_the_hub_may_have_counted_other_files():
    others = (RepoFile(name="consolidated.safetensors", size=9),)
    one = llama(said=total(2 * PARAMETERS))
    assert len(told(one)[1]) == 1
    assert told(replace(one, files=(*others, *one.files)))[1] == []


def test_a_model_card_that_contradicts_is_an_info():
    _, [found] = told(llama(said=(("cardData.parameters", "3B"),)))
    assert (found.where, found.severity) == ("cardData.parameters", Severity.INFO)

"""Models of papers alone are known by name, from any source and without the network."""

import json
import re

from auditor import Unaudited
from auditor.analytic import catalogue, read_config
from auditor.audit.pipeline import explain
from auditor.checkpoint.snapshot import Source
from auditor.downloader.bundled import PAPERS, read_paper
from auditor.downloader.fetching import fetch
from auditor.downloader.model_argument import HubModel


def test_a_name_is_its_config_whatever_the_source():
    for name in PAPERS:
        for source in ("hub", "auto", "cache", "bundled"):
            heard: list[str] = []
            snapshot = fetch(name, source=source, say=heard.append)
            assert (snapshot.source, snapshot.headers) == (Source.BUNDLED, ())
            assert heard == [f"{name}: {snapshot.origin}"]


def test_any_other_name_is_the_hubs():
    for name in ("transformer-2017-huge", "somebody/transformer-2017-base"):
        assert read_paper(HubModel(id=name)) is None
    assert read_paper(HubModel(id="transformer-2017-base", revision="main")) is None


def test_explained_it_is_the_count_of_the_papers_table(subtests):
    """test_transformer_2017.py has the arithmetic of what is beside the words."""
    for name, words, width, beside_words, published in [
        ("transformer-2017-base", 37_000, 512, 44_101_632, 65),
        ("transformer-2017-big", 37_000, 1024, 176_283_648, 213),
    ]:
        with subtests.test(name=name, words=words):
            outcome = explain(name)
            assert isinstance(outcome, Unaudited)
            assert outcome.expected is not None
            assert outcome.expected.parameters == beside_words + words * width
            assert f"which counts {published} million" in outcome.origin


def test_both_vocabularies_have_the_published_sizes(subtests):
    for name in PAPERS[1:]:
        with subtests.test(name=name):
            snapshot = fetch(name)
            pattern = r'"about (\d+)" words make ([\d.]+), and ([\d,]+) words would make ([\d.]+)$'
            said = re.search(pattern, snapshot.origin)
            assert said is not None
            for words, millions in (said.group(1, 2), said.group(3, 4)):
                values = json.loads(snapshot.config.content)
                values["vocab_size"] = int(words.replace(",", ""))
                config = read_config("config.json", json.dumps(values).encode())
                count = catalogue.expect(config, "Transformer2017").parameters
                assert f"{count / 1e6:.1f}" == millions

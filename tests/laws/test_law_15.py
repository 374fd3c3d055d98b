"""Law 15. A sweep and an audit of the same commit agree, whatever else is swept."""

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from support.builders import safetensors_bytes
from support.checkpoints import TINY, expect, stored_by
from support.examples import examples
from support.hub import Hub, ServerError, Sparse, TooMany

from auditor import audit
from auditor.downloader import retry
from auditor.engines import ENGINES
from auditor.formats import as_json
from auditor.sweep import rate_limits, runner
from auditor.sweep.settings import ModelSelection, Output, Policy, SweepSettings
from auditor.sweep.store.reading import Store

pytestmark = pytest.mark.slow

ROWS = 700_000  # of the word embedding: a model of 2.8 million parameters
NUMBERS = count()

NAMES = ("plain", "of-3m", "v2-3m", "of-7b", "of-13b", "8x7b", "tiny-7b", "7b-tokens")
CONFIGS: tuple[Mapping[str, Any], ...] = (
    {},
    {"_name_or_path": "acme/elsewhere"},
    {"transformers_version": "4.1.0"},
    {"num_labels": 3, "id2label": {"0": "a"}},
    {"eos_token_id": ROWS + 1},
    {"torch_dtype": "float16", "dtype": "float32"},
    {"vocab_sise": 9},
    {"auto_map": {"AutoModel": "modeling.Own"}},
)
# Texts of one config that are read, or refused, otherwise than its values alone tell.
SPELLINGS = (
    lambda text: text,
    lambda text: b"\xef\xbb\xbf" + text,
    lambda text: text.replace(b"{", b'{"hidden_size": 8, ', 1),
    lambda text: text.replace(b'"_name_or_path": "', b'"_name_or_path": "\xff'),
    lambda text: text[:-1],
)
CARDS = (None, {"parameters": "7B"}, {"model_size": "2.8M"}, {"base_model": "acme/of-3m"})
FILES: Mapping[str, bytes] = {
    "README.md": b"# A model\n",
    "training_args.bin": b"PK",
    "runs/Nov21/events.out.tfevents.1": b"1",
    "tf_model.h5": b"h5",
    "adapter_config.json": b"{}",
    "onnx/model.onnx": b"onnx",
    "generation_config.json": b'{"do_sample": false, "temperature": 0.5, "eos_token_id": 3}',
    "tokenizer_config.json": b'{"eos_token": "<e>", "added_tokens_decoder": '
    b'{"900000": {"content": "<e>"}}}',
    "chat_template.jinja": b"{% if %}",
    "vocab.txt": b"[PAD]\n[UNK]\n",
    "modeling.py": b"",
}


class Model(Struct, frozen=True):
    """One drawn model; all of them have the same header."""

    name: str
    config: Mapping[str, Any]
    spelling: int
    card: Mapping[str, object] | None
    files: frozenset[str]
    gated: bool

    def content(self) -> dict[str, bytes | Sparse]:
        values = {**TINY, "vocab_size": ROWS, "architectures": ["BertModel"], "dtype": "float32"}
        text = json.dumps({**values, "_name_or_path": "x", **self.config}).encode()
        beside = {name: FILES[name] for name in self.files}
        return {
            "config.json": SPELLINGS[self.spelling](text),
            "model.safetensors": WEIGHTS,
            **beside,
        }


def _weights() -> Sparse:
    expected = expect("BertModel", vocab_size=ROWS)
    tensors = {one.name: ("F32", one.shape) for one in stored_by(expected)}
    head = safetensors_bytes(tensors, data=False)
    size = sum(4 * one.elements for one in stored_by(expected))
    return Sparse(head, len(head) + size)


WEIGHTS = _weights()
MODELS = st.builds(
    Model,
    name=st.sampled_from(NAMES),
    config=st.sampled_from(CONFIGS),
    spelling=st.sampled_from([0, 0, 0, *range(1, len(SPELLINGS))]),
    card=st.sampled_from(CARDS),
    files=st.frozensets(st.sampled_from(sorted(FILES)), max_size=4),
    gated=st.sampled_from([False] * 9 + [True]),
)


@pytest.fixture
def quick_hub(at_hub, monkeypatch):
    """A Hub of whose first answer nobody waits a quarter of a second."""
    monkeypatch.setattr(rate_limits, "_LOOK", 0.005)
    return at_hub


def added(hub: Hub, models: list[Model]) -> tuple[str, dict[str, str]]:
    """The author of the models on the Hub, and the commit of each by its id."""
    author = f"acme{next(NUMBERS)}"
    commits = {}
    for number, one in enumerate(models):
        gate = "auto" if one.gated else False
        name = f"{author}/m{number}-{one.name}"
        commits[name] = hub.add(name, one.content(), card=one.card, gated=gate)
    return author, commits


def compared(outcome: dict[str, Any]) -> dict[str, Any]:
    """An outcome without what it cost, and without the spelling of the request.

    Of a model that cannot be read, an audit does not know the id after renames and the commit.
    """
    left_out = {"fetched", "requested"}
    if outcome["origin"] is None:
        left_out |= {"model", "commit", "source"}
    return {key: value for key, value in outcome.items() if key not in left_out}


def audited(model: str, commit: str, *, companions: bool) -> dict[str, Any]:
    outcome = audit(f"{model}@{commit}", companions=companions, engines=ENGINES)
    return compared(json.loads(as_json.render(outcome)))


def swept(
    store: Path, selection: ModelSelection, night: str, *, companions: bool
) -> dict[str, dict[str, Any]]:
    policy = Policy(engines=ENGINES, at_once=1, companions=companions)
    asked = SweepSettings(selections=(selection,), policy=policy, output=Output(store=store))
    runner.sweep(asked, night=night)
    with Store.open(store) as opened:
        return {one.model: compared(one.outcome) for one in opened.results(night)}


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    models=st.lists(MODELS, min_size=2, max_size=5),
    listed=st.booleans(),
    companions=st.lists(st.booleans(), min_size=1, max_size=3),
)
def test_a_sweep_and_audits_of_the_same_commits_agree(
    quick_hub, tmp_path_factory, models, listed, companions
):
    author, commits = added(quick_hub, models)
    chosen = ModelSelection(author=author) if listed else ModelSelection(ids=tuple(commits))
    store = tmp_path_factory.mktemp("law") / "sweep.sqlite"
    for night, beside in enumerate(companions):
        outcomes = swept(store, chosen, f"n{night}", companions=beside)
        assert outcomes.keys() == commits.keys()
        for model, commit in commits.items():
            assert outcomes[model] == audited(model, commit, companions=beside)


@pytest.mark.parametrize("fault", [ServerError(), TooMany(reset=0)])
def test_a_companion_file_that_fails_once_is_read_again(quick_hub, tmp_path, fault):
    beside = frozenset(["generation_config.json"])
    model = Model("plain", {}, 0, None, beside, gated=False)
    author, commits = added(quick_hub, [model])
    quick_hub.misbehave(path="*generation_config.json", fault=fault, times=1)
    chosen = ModelSelection(author=author)
    outcomes = swept(tmp_path / "sweep.sqlite", chosen, "n0", companions=True)
    for name, commit in commits.items():
        assert outcomes[name] == audited(name, commit, companions=True)
        assert not any("generation_config" in line for line in outcomes[name]["unchecked"])


def test_a_companion_file_that_always_fails_leaves_no_stored_outcome(
    quick_hub, tmp_path, monkeypatch
):
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)
    beside = frozenset(["generation_config.json"])
    model = Model("plain", {}, 0, None, beside, gated=False)
    author, commits = added(quick_hub, [model])
    quick_hub.misbehave(path="*generation_config.json", fault=ServerError())
    chosen, store = ModelSelection(author=author), tmp_path / "sweep.sqlite"
    [failed] = swept(store, chosen, "n0", companions=True).values()
    assert failed["reason"] == "server-error"
    quick_hub.behave()
    for name, commit in commits.items():
        outcomes = swept(store, chosen, "n1", companions=True)
        assert outcomes[name] == audited(name, commit, companions=True)

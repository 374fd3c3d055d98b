"""Hubs that refuse, and machines that cannot reach one; those that lie: test_server_faults.py."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from support.bad_input.making import (
    CONFIG,
    GOOD_CONFIG,
    GOOD_WEIGHTS,
    INDEX,
    SHARDS,
    WEIGHTS,
    assert_ended,
    index,
    split,
)
from support.bad_input.running import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    USAGE,
    Run,
    assert_harmless,
    environment,
    run,
    tree,
)
from support.builders import safetensors_bytes
from support.hub import Hub, ServerError, Sparse, TooMany, WrongJson

ID = "org/m"
GOOD = {CONFIG: GOOD_CONFIG, WEIGHTS: GOOD_WEIGHTS, "README.md": b"# m\n"}
IN_SHARDS = {
    CONFIG: GOOD_CONFIG,
    INDEX: index(),
    **{shard: safetensors_bytes(tensors) for shard, tensors in split().items()},
}
API, ON_CONFIG = "/api/models/*", f"*/{CONFIG}"
TOKEN = {"HF_TOKEN": "hf_mine"}
NO_TOKEN = {"HF_TOKEN_PATH": "/dev"}


class Case(NamedTuple):
    """What the Hub does, what the machine is told, and what is said of it."""

    code: int
    says: str | tuple[str, str]  # the last line on stderr; or kind and reason of a finding
    set_up: Callable[[Hub], object] = lambda hub: hub.add(ID, GOOD)
    args: tuple[str, ...] = (ID,)
    variables: Mapping[str, str] = {}


def repo(files: Mapping[str, object], **fields) -> Callable[[Hub], object]:
    return lambda hub: hub.add(ID, files, **fields)


def faulty(path: str, fault) -> Callable[[Hub], object]:
    """A good model behind a fault that never ends."""

    def set_up(hub: Hub) -> None:
        hub.add(ID, GOOD)
        hub.misbehave(fault=fault, path=path)

    return set_up


def known_to(token: str, *ids: str, **fields) -> Callable[[Hub], object]:
    def set_up(hub: Hub) -> None:
        hub.add(ID, GOOD, **fields)
        hub.grant(token, *ids)

    return set_up


def refusal(says: str, set_up=Case._field_defaults["set_up"], args=(ID,), **variables) -> Case:
    return Case(UNAUDITED, says, set_up, args, variables)


def machine(code: int, says: str, *args: str, **variables: str) -> Case:
    return Case(code, says, args=args or (ID,), variables=variables)


LISTED = {"id": ID, "sha": "0" * 40, "siblings": [{"rfilename": "../../etc/passwd"}]}
# One of each kind: the downloader's unit tests have the others.
REFUSALS = {
    "unknown": refusal("not-found: .*no model org/n: check the spelling", args=("org/n",)),
    "gated to one with a token": refusal(
        "gated: .*org/m is gated", known_to("hf_mine", gated="auto"), **TOKEN
    ),
    "a wrong token": refusal("denied: .*with 401 .*check the token", **TOKEN),
    "only .bin": refusal("no-safetensors: .*'a.bin'", repo({CONFIG: b"{}", "a.bin": b""})),
    "no config": refusal("no-config: .*no config.json", repo({WEIGHTS: GOOD_WEIGHTS})),
    "a file above the repo": refusal(
        "bad-response: .*listing of org/m.*leaves the repository",
        faulty(API, WrongJson(value=LISTED)),
    ),
    "429 for an hour": refusal("rate-limited: .*in 3600 s", faulty(API, TooMany(retry_after=3600))),
    "451": refusal("disabled: .*legal", faulty(ON_CONFIG, ServerError(status=451))),
}
FOUND = {
    "weights of a terabyte of zeros": Case(
        FINDINGS,
        ("bad-header", "has no safetensors header"),
        repo({**GOOD, WEIGHTS: Sparse(b"", 10**12)}),
    ),
    "a shard that is not there": Case(
        FINDINGS,
        ("bad-index", f"in {SHARDS[1]}, and that file does not exist"),
        repo({name: data for name, data in IN_SHARDS.items() if name != SHARDS[1]}),
    ),
}
MACHINES = {
    "nothing listens": machine(UNAUDITED, "unreachable: .*127", HF_ENDPOINT="http://127.0.0.1:9"),
    "offline": machine(UNAUDITED, "offline: .*HF_HUB_OFFLINE is set", HF_HUB_OFFLINE="1"),
    "not cached": machine(UNAUDITED, "not-cached: org/m is not in", ID, "--source=cache"),
    "not shipped": machine(UNAUDITED, "not-bundled: org/m is not ship", ID, "--source=bundled"),
    "a cache that is a device": machine(
        UNAUDITED, "not-cached", ID, "--source=cache", HF_HOME="/dev/null"
    ),
    "an endpoint with a space": machine(
        USAGE, "HF_ENDPOINT is 'http://a b', expected", HF_ENDPOINT="http://a b"
    ),
    "an endpoint that rings": machine(
        USAGE, r"HF_ENDPOINT is '.*\\x07", HF_ENDPOINT="http://a\x07"
    ),
    "a token of two words": machine(
        USAGE,
        "the token has characters",
        HF_TOKEN="hf_a hf_b",  # noqa: S106 - of nothing
    ),
    "a time-out of letters": machine(
        USAGE, "cannot read .* HF_ variable.*'x'", HF_HUB_DOWNLOAD_TIMEOUT="x"
    ),
    "a proxy of nonsense": machine(
        USAGE, "no connection can .*ALL_PROXY", ALL_PROXY="nonsense://x"
    ),
    "no certificates": machine(USAGE, "no connection can .*SSL_CERT", SSL_CERT_FILE="/nowhere"),
    "a token that is a folder": machine(
        UNAUDITED, "unreadable: the stored token, '/dev', cannot", **NO_TOKEN
    ),
}


def ended(case: Case, place: Path, against: Run | None) -> Run:
    """The audit of one case, on a Hub and a machine of its own."""
    (place / "cwd").mkdir(parents=True)
    with Hub() as hub:
        case.set_up(hub)
        env = environment(place / "home", HF_ENDPOINT=hub.url) | dict(case.variables)
        before = tree(place)
        ran = run(*case.args, "--format=json", env=env, cwd=place / "cwd")
    if against is not None:
        assert_harmless(ran, against)
    assert tree(place) == before
    return ran


@pytest.fixture(scope="module")
def clean_hub(tmp_path_factory) -> Run:
    """The audit of a model on a Hub that does as it should."""
    ran = ended(Case(CLEAN, ""), tmp_path_factory.mktemp("hub"), None)
    assert ran.code == CLEAN
    return ran


def test_a_hub_or_a_machine_that_is_at_fault_ends_with_a_reason(subtests, clean_hub, tmp_path):
    for at, (name, case) in enumerate({**REFUSALS, **FOUND, **MACHINES}.items()):
        with subtests.test(name=name):
            assert_ended(ended(case, tmp_path / f"{at}", clean_hub), case.code, case.says)

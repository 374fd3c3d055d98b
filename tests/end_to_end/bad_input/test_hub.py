"""Hubs that refuse, break off, lie or fall silent, and machines that cannot reach one."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest
from support.bad_input.making import (
    CONFIG,
    GOOD_CONFIG,
    GOOD_WEIGHTS,
    INDEX,
    POINTER,
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
from support.hub import (
    Drip,
    EndlessBody,
    EndlessHeaders,
    Fault,
    Gzipped,
    HangUp,
    Header,
    HtmlPage,
    Hub,
    RedirectLoop,
    RedirectTo,
    Reset,
    ServerError,
    ShortBody,
    Sparse,
    Stall,
    TooMany,
    WholeFile,
    WrongJson,
    WrongRange,
)

ID = "org/m"
GOOD = {CONFIG: GOOD_CONFIG, WEIGHTS: GOOD_WEIGHTS, "README.md": b"# m\n"}
IN_SHARDS = {
    CONFIG: GOOD_CONFIG,
    INDEX: index(),
    **{shard: safetensors_bytes(tensors) for shard, tensors in split().items()},
}
API, ON_CONFIG, ON_WEIGHTS = "/api/models/*", f"*/{CONFIG}", f"*/{WEIGHTS}"
AT_ONCE = 12  # audits that wait for something, mostly; each takes a quarter second of a core


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the Hub does, what the machine is told, and what is said of it."""

    name: str
    code: int
    says: str | tuple[str, str]  # the last line on stderr; or kind and reason of a finding
    set_up: Callable[[Hub], object] = lambda hub: hub.add(ID, GOOD)
    args: tuple[str, ...] = (ID,)
    variables: Mapping[str, str] = field(default_factory=dict)


def refusal(name: str, reason: str, says: str = "", **fields) -> Case:
    return Case(name=name, code=UNAUDITED, says=f"{reason}: .*{says}", **fields)


def repo(files: Mapping[str, object], **fields) -> Callable[[Hub], object]:
    return lambda hub: hub.add(ID, files, **fields)


def faulty(  # noqa: PLR0913, PLR0917 - a row's columns
    name: str,
    path: str,
    fault: Fault,
    reason: str,
    says: str,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Case:
    """A good model behind a fault that never ends."""

    def set_up(hub: Hub) -> None:
        hub.add(ID, GOOD)
        hub.misbehave(fault=fault, path=path)

    return refusal(name, reason, says, set_up=set_up, variables=variables)


def listing(name: str, says: str, **changes: object) -> Case:
    """A listing with other entries."""
    true = {"id": ID, "sha": "0" * 40, "siblings": [{"rfilename": CONFIG, "size": 1}]}
    answer = {key: value for key, value in {**true, **changes}.items() if value is not ...}
    return faulty(name, API, WrongJson(value=answer), "bad-response", f"listing of {ID}.*{says}")


def known_to(token: str, *ids: str, **fields) -> Callable[[Hub], object]:
    def set_up(hub: Hub) -> None:
        hub.add(ID, GOOD, **fields)
        hub.grant(token, *ids)

    return set_up


def machine(name: str, code: int, says: str, *args: str, **variables: str) -> Case:
    return Case(name=name, code=code, says=says, args=args or (ID,), variables=variables)


TOKEN = {"HF_TOKEN": "hf_mine"}
TWO_WORDS = {"HF_TOKEN": "hf_a hf_b"}
NO_TOKEN = {"HF_TOKEN_PATH": "/dev"}
REFUSALS = (
    refusal("unknown", "not-found", "no model org/n: check the spelling", args=("org/n",)),
    refusal(
        "unknown to one with a token",
        "not-found",
        "no model org/n",
        set_up=known_to("hf_mine"),
        args=("org/n",),
        variables=TOKEN,
    ),
    refusal("gated", "gated", "org/m is gated: accept", set_up=repo(GOOD, gated="manual")),
    refusal(
        "gated to one with a token",
        "gated",
        "org/m is gated",
        set_up=known_to("hf_mine", gated="auto"),
        variables=TOKEN,
    ),
    refusal("private", "not-found", "a private model needs a", set_up=repo(GOOD, private=True)),
    refusal(
        "private to one with a token",
        "not-found",
        "a private model needs a token",
        set_up=known_to("hf_mine", private=True),
        variables=TOKEN,
    ),
    refusal("disabled", "disabled", "org/m is disabled", set_up=repo(GOOD, disabled=True)),
    refusal("a wrong token", "denied", "with 401 .*check the token", variables=TOKEN),
    refusal("a wrong token given", "denied", "401", args=(ID, "--token", "hf_other")),
    refusal("no revision", "no-revision", "has no revision 'nowhere'", args=(f"{ID}@nowhere",)),
    refusal("an empty repo", "empty-repo", "org/m is empty", set_up=repo({})),
    refusal("paperwork", "empty-repo", "org/m is empty", set_up=repo({"README.md": b"#"})),
    refusal("only .bin", "no-safetensors", "'a.bin'", set_up=repo({CONFIG: b"{}", "a.bin": b""})),
    refusal("a config alone", "no-weights", "no weights", set_up=repo({CONFIG: GOOD_CONFIG})),
    refusal("no config", "no-config", "no config.json", set_up=repo({WEIGHTS: GOOD_WEIGHTS})),
    refusal(
        "a config of 20 MB",
        "too-large",
        "'config.json' has 20,000,000 bytes",
        set_up=repo({**GOOD, CONFIG: Sparse(GOOD_CONFIG, 20 * 10**6)}),
    ),
    refusal(
        "an index of 100 MB",
        "too-large",
        "index.json' has 100,000,000 bytes",
        set_up=repo({**IN_SHARDS, INDEX: Sparse(index(), 10**8)}),
    ),
)
FOUND = (
    Case(
        name="a config that is none",
        code=FINDINGS,
        says=("bad-config", "^config.json is not JSON"),
        set_up=repo({**GOOD, CONFIG: b"x"}),
    ),
    Case(
        name="a pointer for weights",
        code=FINDINGS,
        says=("bad-header", "is a Git LFS pointer"),
        set_up=repo({**GOOD, WEIGHTS: POINTER}, lfs=()),
    ),
    Case(
        name="weights of a terabyte of zeros",
        code=FINDINGS,
        says=("bad-header", "has no safetensors header"),
        set_up=repo({**GOOD, WEIGHTS: Sparse(b"", 10**12)}),
    ),
    Case(
        name="empty weights",
        code=FINDINGS,
        says=("bad-size", "^model.safetensors is empty: 0 bytes"),
        set_up=repo({**GOOD, WEIGHTS: b""}),
    ),
    Case(
        name="a shard that is not there",
        code=FINDINGS,
        says=("bad-index", f"in {SHARDS[1]}, and that file does not exist"),
        set_up=repo({name: data for name, data in IN_SHARDS.items() if name != SHARDS[1]}),
    ),
    Case(
        name="an index of the file system",
        code=FINDINGS,
        says=("bad-index", "leaves the folder of the index"),
        set_up=repo({**IN_SHARDS, INDEX: index({"a": "../../../api/whoami-v2"})}),
    ),
)
LISTINGS = (
    listing(
        "a file above the repo",
        "leaves the repository",
        siblings=[{"rfilename": "../../etc/passwd"}],
    ),
    listing("an id that is none", "has the id", id="a\x1bb"),
    faulty(
        "a listing 500 deep",
        API,
        WrongJson(value=json.loads("[" * 500 + "]" * 500)),
        "bad-response",
        "is nested 500",
    ),
    faulty("a page for a listing", API, HtmlPage(), "bad-response", "is not JSON: .* a Hub"),
    faulty("a page for a config", ON_CONFIG, HtmlPage(), "bad-response", "is a proxy in the way"),
    faulty("a page for weights", ON_WEIGHTS, HtmlPage(), "bad-response", ""),
)
PROMPT = (
    faulty("429 for an hour", API, TooMany(retry_after=3600), "rate-limited", "in 3600 s"),
    faulty(
        "503 for an hour", API, ServerError(status=503, retry_after=3600), "server-error", "3600 s"
    ),
    faulty("404 and a gigabyte", API, ServerError(status=404, size=10**9), "bad-response", "404"),
    faulty("418", ON_CONFIG, ServerError(status=418), "bad-response", "418"),
    faulty("451", ON_CONFIG, ServerError(status=451), "disabled", "legal"),
    faulty("a loop", ON_CONFIG, RedirectLoop(), "bad-response", "redirects more than 5 times"),
    faulty("a loop at once", API, RedirectLoop(), "bad-response", "redirects more than 5 times"),
    faulty(
        "to a file", ON_CONFIG, RedirectTo(location="file:///etc/passwd"), "bad-response", "'file'"
    ),
    faulty("to ftp", ON_WEIGHTS, RedirectTo(location="ftp://127.0.0.1/x"), "bad-response", "'ftp'"),
    faulty("to no address", ON_CONFIG, RedirectTo(location="http://[::1"), "bad-response", "."),
    faulty(
        "another commit",
        ON_WEIGHTS,
        Header(name="X-Repo-Commit", value="0" * 40),
        "commit-moved",
        "",
    ),
    faulty(
        "no commit in answers", "*", Header(name="X-Repo-Commit", value=None), "bad-response", ""
    ),
    faulty("an endless listing", API, EndlessBody(), "too-large", "expected at most"),
    faulty("an endless config", ON_CONFIG, EndlessBody(), "too-large", "expected at most"),
    faulty("endless chunks", ON_CONFIG, EndlessBody(chunked=True), "too-large", "at most"),
    faulty(
        "a packed listing",
        API,
        Gzipped(),
        "bad-response",
        r"the encoding 'gzip', expected identity",
    ),
    faulty("a packed config", ON_CONFIG, Gzipped(), "bad-response", r"the encoding"),
    faulty("packed weights", ON_WEIGHTS, Gzipped(), "bad-response", r"the encoding"),
)
SLOW = (
    faulty("500 for ever", API, ServerError(), "server-error", r"500 .*\(tried 5 times\)"),
    faulty("502 and a gigabyte", API, ServerError(status=502, size=10**9), "server-error", "502"),
    faulty("429 for ever", ON_WEIGHTS, TooMany(), "rate-limited", r"429.*\(tried 5 times\)"),
    faulty("reset for ever", API, Reset(), "unreachable|bad-response", r"\(tried 5 times\)"),
    faulty("reset half-way", ON_WEIGHTS, Reset(after=9), "unreachable|bad-response", "5 times"),
    faulty("hung up for ever", API, HangUp(), "bad-response", r"broke off .*\(tried 5 times\)"),
    faulty("a short listing", API, ShortBody(), "bad-response", r"broke off .*\(tried 5 times\)"),
    faulty("a short config", ON_CONFIG, ShortBody(), "bad-response", r"\(tried 5 times\)"),
    faulty("short weights", ON_WEIGHTS, ShortBody(), "bad-response", r"\(tried 5 times\)"),
    faulty("another range", ON_WEIGHTS, WrongRange(shift=1), "bad-response", "expected bytes="),
    faulty("another size", ON_WEIGHTS, WrongRange(total=10**9), "bad-response", r"\(tried 5 times"),
    faulty(
        "a part of what", ON_WEIGHTS, Header(name="Content-Range", value=None), "bad-response", "''"
    ),
    faulty("endless headers", API, EndlessHeaders(), "bad-response", "."),
    faulty(
        "to where nobody listens",
        ON_CONFIG,
        RedirectTo(location="http://127.0.0.1:9/x"),
        "unreachable",
        "no connection to 127.0.0.1",
    ),
    faulty(
        "silence", API, Stall(), "timed-out", "in time", variables={"HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    ),
    faulty(
        "silence half-way",
        ON_WEIGHTS,
        Stall(after=9),
        "timed-out",
        "in time",
        variables={"HF_HUB_DOWNLOAD_TIMEOUT": "1"},
    ),
    faulty(
        "a drip",
        ON_CONFIG,
        Drip(piece=1, seconds=0.1),
        "timed-out",
        "sends too slowly",
        variables={"HF_HUB_DOWNLOAD_TIMEOUT": "1"},
    ),
    machine("nothing listens", UNAUDITED, "unreachable: .*127", HF_ENDPOINT="http://127.0.0.1:9"),
)
MACHINES = (
    machine("offline", UNAUDITED, "offline: .*HF_HUB_OFFLINE is set", HF_HUB_OFFLINE="1"),
    machine("offline, auto", UNAUDITED, "offline: ", ID, "--source=auto", HF_HUB_OFFLINE="1"),
    machine("not cached", UNAUDITED, "not-cached: org/m is not in", ID, "--source=cache"),
    machine("not shipped", UNAUDITED, "not-bundled: org/m is not ship", ID, "--source=bundled"),
    machine(
        "a cache that is a device",
        UNAUDITED,
        "not-cached",
        ID,
        "--source=cache",
        HF_HOME="/dev/null",
    ),
    machine(
        "an endpoint with a space",
        USAGE,
        "HF_ENDPOINT is 'http://a b', expected",
        HF_ENDPOINT="http://a b",
    ),
    machine("half an endpoint", USAGE, "cannot read HF_ENDPOINT .*IPv6", HF_ENDPOINT="http://[::1"),
    machine("a port too high", USAGE, "HF_ENDPOINT is .*port", HF_ENDPOINT="http://a:99999"),
    machine("a port of letters", USAGE, "HF_ENDPOINT is .*port", HF_ENDPOINT="http://a:x"),
    machine(
        "an endpoint that rings", USAGE, r"HF_ENDPOINT is '.*\\x07", HF_ENDPOINT="http://a\x07"
    ),
    machine("a token of two words", USAGE, "the token has characters", **TWO_WORDS),
    machine("a token in colour", USAGE, "the token has characters", ID, "--token", "\x1b[31m"),
    machine(
        "a time-out of letters",
        USAGE,
        "cannot read .* HF_ variable.*'x'",
        HF_HUB_DOWNLOAD_TIMEOUT="x",
    ),
    machine(
        "a proxy of nonsense", USAGE, "no connection can .*ALL_PROXY", ALL_PROXY="nonsense://x"
    ),
    machine("a proxy of socks", UNAUDITED, "unreachable: .*SOCKS", ALL_PROXY="socks5://a:9"),
    machine("no certificates", USAGE, "no connection can .*SSL_CERT", SSL_CERT_FILE="/nowhere"),
    machine(
        "a token that is a folder",
        UNAUDITED,
        "unreadable: the stored token, '/dev', cannot",
        **NO_TOKEN,
    ),
)
WELL = (
    faulty("200 for 206", ON_WEIGHTS, WholeFile(), "", ""),
    faulty("no length", ON_CONFIG, Header(name="Content-Length", value=None), "", ""),
    faulty("any total", ON_WEIGHTS, WrongRange(total="*"), "", ""),
)


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


def params(cases) -> list:
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.fixture(scope="module")
def clean_hub(tmp_path_factory) -> Run:
    """The audit of a model on a Hub that does as it should."""
    ran = ended(Case(name="clean", code=CLEAN, says=""), tmp_path_factory.mktemp("hub"), None)
    assert ran.code == CLEAN
    return ran


@pytest.fixture(scope="module", autouse=True)
def waiting(tmp_path_factory, clean_hub: Run):
    """The audits that take a while, beside all others: by name, what will come of them."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            case.name: pool.submit(ended, case, tmp_path_factory.mktemp("slow"), clean_hub)
            for case in SLOW
        }


@pytest.mark.parametrize("case", params((*REFUSALS, *FOUND, *LISTINGS, *PROMPT, *MACHINES)))
def test_what_the_hub_or_the_machine_does_wrong_ends_with_a_reason(case, clean_hub, tmp_path):
    assert_ended(ended(case, tmp_path, clean_hub), case.code, case.says)


@pytest.mark.parametrize("case", params(SLOW))
def test_what_may_pass_and_does_not_ends_with_a_reason_all_the_same(
    case, waiting: Mapping[str, Future[Run]]
):
    assert_ended(waiting[case.name].result(), case.code, case.says)


@pytest.mark.parametrize("case", params(WELL))
def test_what_a_server_may_do_is_clean(case, clean_hub, tmp_path):
    ran = ended(case, tmp_path, clean_hub)
    assert (ran.code, ran.stderr) == (CLEAN, "")

"""The Hub that the other tests talk to speaks as the real one does."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hub import Origin, Quota, Sparse
from support.hub.client import ask
from support.hub.protocol import span

TESTS = Path(__file__).parents[2]
BERT = "google-bert/bert-base-chinese"
GPT2_SIZE = 548_105_171  # bytes of gpt2's model.safetensors


def shelve(hub):
    config = {"config.json": "{}"}
    hub.add("o/open", config)
    hub.add("o/private", config, private=True)
    hub.add("o/gated", config, gated="manual")
    hub.add("o/disabled", config, disabled=True)
    hub.grant("hf_reader", "o/private", "o/gated")
    hub.grant("hf_other")


# ---- laws ----


@given(
    content=st.binary(min_size=1, max_size=40), first=st.integers(0, 39), more=st.integers(0, 60)
)
def test_a_range_is_the_slice_it_names(content, first, more):
    first %= len(content)
    start, stop = span(f"bytes={first}-{first + more}", len(content))
    assert content[start:stop] == content[first : first + more + 1]


def test_anything_but_one_range_of_bytes_requests_the_full_file(subtests):
    for asked, expected in [
        ("bytes=0-0", (0, 1)),
        ("bytes=90-", (90, 100)),
        ("bytes=-10", (90, 100)),
        ("bytes=-500", (0, 100)),
        ("bytes=0-1,5-6", None),
        ("lines=1-2", None),
        ("bytes=-", None),
        (None, None),
    ]:
        with subtests.test(asked=asked, expected=expected):
            assert span(asked, 100) == expected


# ---- the protocol, to the byte ----


PRIVATE, GATED, DISABLED = (
    "/api/models/o/private",
    "/o/gated/resolve/main",
    "/api/models/o/disabled",
)
NOT_FOUND = ("RepoNotFound", "Repository not found")
SHUT = ("GatedRepo", "Access to model o/gated is restricted")
OFF = ("DisabledRepo", "Access to this resource is disabled.")
WRONG = (None, "Invalid credentials in Authorization header")
NOTHING = (None, "")


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [
        (("/api/models/o/open", None), 200, NOTHING),
        (("/api/models/o/open", "hf_other"), 200, NOTHING),
        (("/api/models/o/open", "bad"), 401, WRONG),
        (("/o/open/resolve/main/config.json", None), 200, NOTHING),
        (("/o/open/resolve/main/config.json", "bad"), 401, WRONG),
        (("/o/open/resolve/main/x", None), 404, ("EntryNotFound", "Entry not found")),
        (("/o/open/resolve/v9/x", None), 404, ("RevisionNotFound", "Invalid rev id: v9")),
        (("/api/models/o/open/revision/v9", None), 404, ("RevisionNotFound", "Invalid rev id")),
        (("/api/models/o/none", None), 401, NOT_FOUND),
        (("/api/models/o/none", "hf_reader"), 404, NOT_FOUND),
        ((PRIVATE, None), 401, NOT_FOUND),
        ((PRIVATE, "hf_other"), 404, NOT_FOUND),
        ((PRIVATE, "hf_reader"), 200, NOTHING),
        (("/api/models/o/gated", None), 200, NOTHING),
        ((f"{GATED}/config.json", None), 401, SHUT),
        ((f"{GATED}/config.json", "hf_other"), 403, SHUT),
        ((f"{GATED}/x", "hf_other"), 403, SHUT),
        ((f"{GATED}/config.json", "hf_reader"), 200, NOTHING),
        ((DISABLED, None), 403, OFF),
        (("/o/disabled/resolve/main/config.json", None), 403, OFF),
        (("/api/agent-harnesses", None), 404, NOTHING),
        (("/api/models?sort=beauty", None), 400, (None, "Invalid sort parameter 'beauty'")),
    ],
)
def test_every_refusal_has_its_status_code_and_message(asked, status, expected, hub):
    shelve(hub)
    path, token = asked
    auth = {"Authorization": f"Bearer {token}"} if token else {}
    code, message = expected
    for method in ("GET", "HEAD"):
        reply = ask(hub.url + path, method, **auth)
        assert (reply.status, reply.headers["X-Error-Code"]) == (status, code)
        assert (reply.headers["X-Error-Message"] or "").startswith(message)
        assert reply.headers["RateLimit"]
        assert method == "GET" or reply.body == b""


def test_a_small_file_comes_from_the_hub_and_ranges_are_cut_from_it(hub):
    sha = hub.add("o/n", {"config.json": b"0123456789"})
    url = f"{hub.url}/o/n/resolve/main/config.json"
    whole, part, beyond = ask(url), ask(url, Range="bytes=2-4"), ask(url, Range="bytes=10-")
    assert (whole.status, whole.body, whole.headers["X-Repo-Commit"]) == (200, b"0123456789", sha)
    assert (part.status, part.body, part.headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    assert (beyond.status, beyond.headers["Content-Range"]) == (416, "bytes */10")
    assert whole.headers["ETag"] == part.headers["ETag"]
    assert ask(url, method="HEAD").headers["Content-Length"] == "10"


def test_a_large_file_is_redirected_to_storage_with_its_size(hub):
    sha = hub.add("o/n", {"model.safetensors": Sparse(b"head", GPT2_SIZE)})
    first = ask(f"{hub.url}/o/n/resolve/main/model.safetensors", Range="bytes=0-9")
    assert (first.status, first.headers["X-Repo-Commit"]) == (302, sha)
    assert first.headers["X-Linked-Size"] == str(GPT2_SIZE)
    assert first.headers["Location"].startswith(hub.storage_url)
    stored = ask(first.headers["Location"], Range="bytes=0-9")
    assert (stored.status, stored.body) == (206, b"head" + bytes(6))
    assert stored.headers["Content-Range"] == f"bytes 0-9/{GPT2_SIZE}"
    assert "X-Repo-Commit" not in stored.headers


def test_raw_is_what_git_has_of_a_file_the_pointer_of_one_in_lfs(hub):
    hub.add("o/n", {"config.json": b"{}", "model.safetensors": Sparse(b"head", GPT2_SIZE)})
    raw = f"{hub.url}/o/n/raw/main"
    assert ask(f"{raw}/config.json").body == b"{}"
    pointer = ask(f"{raw}/model.safetensors")
    assert pointer.body.startswith(b"version https://git-lfs.github.com/spec/v1\noid sha256:")
    assert pointer.body.endswith(b"size %d\n" % GPT2_SIZE)
    assert ask(f"{raw}/x", method="HEAD").status == 404


@pytest.mark.parametrize(
    ("minted", "used", "status"),
    [
        ("bytes=0-9", "bytes=0-9", 206),
        (None, None, 200),
        ("bytes=0-9", "bytes=10-19", 403),
        ("bytes=0-9", None, 403),
        (None, "bytes=0-9", 403),
    ],
)
def test_a_signed_url_is_valid_for_the_range_that_minted_it(minted, used, status, hub):
    hub.add("o/n", {"m.safetensors": bytes(100)})
    ranged = {"Range": minted} if minted else {}
    location = ask(f"{hub.url}/o/n/resolve/main/m.safetensors", **ranged).headers["Location"]
    assert ask(location, **({"Range": used} if used else {})).status == status


@pytest.mark.parametrize("alias", ["bert", "m"])
def test_a_former_name_redirects_to_a_relative_location(alias, hub):
    hub.add(BERT, {"config.json": "{}"}, aliases=[alias])
    api = ask(f"{hub.url}/api/models/{alias}/revision/main?blobs=true")
    file = ask(f"{hub.url}/{alias}/resolve/main/config.json", method="HEAD")
    expected = f"/api/models/{BERT}/revision/main?blobs=true"
    assert (api.status, api.headers["Location"]) == (307, expected)
    assert (file.status, file.headers["Location"]) == (307, f"/{BERT}/resolve/main/config.json")


def test_branches_tags_commits_and_pull_requests_are_revisions(hub):
    old = hub.add(
        "o/n",
        {"f": "main"},
        refs={"v1": {"f": "tag"}, "refs/pr/1": {"f": "pr"}, "a/b": {"f": "branch"}},
    )
    new = hub.push("o/n", {"f": "newer"})
    named = {
        "main": "newer",
        "v1": "tag",
        "refs/pr/1": "pr",
        "refs%2Fpr%2F1": "pr",
        "a%2Fb": "branch",
    }
    for revision, expected in {**named, old: "main", new: "newer"}.items():
        assert ask(f"{hub.url}/o/n/resolve/{revision}/f").body.decode() == expected
    assert ask(f"{hub.url}/api/models/o/n/revision/refs%2Fpr%2F1").status == 200
    assert ask(f"{hub.url}/api/models/o/n").json["sha"] == new
    assert ask(f"{hub.url}/api/models/o/n/revision/{old}").json["sha"] == old


def test_the_list_is_paged_by_link_and_has_the_requested_fields(hub):
    shas = [hub.add(f"o/n{n}", {"config.json": '{"model_type": "t5", "x": 1}'}) for n in range(3)]
    url = f"{hub.url}/api/models?limit=2&expand[]=sha&expand[]=config&expand[]=siblings"
    first = ask(url)
    more = first.headers["Link"].removeprefix("<").removesuffix('>; rel="next"')
    second = ask(more)
    assert [m["sha"] for m in first.json + second.json] == shas
    assert [m["config"] for m in first.json] == [{"model_type": "t5"}] * 2
    assert first.json[0]["siblings"] == [{"rfilename": "config.json"}]
    assert "Link" not in second.headers


def test_the_windows_are_counted_separately_and_a_spent_one_answers_429(hub):
    hub.add("o/n", {"f": "x"})
    hub.limit(Quota(api=1, resolvers=2, window=300))
    replies = [ask(hub.url + path) for path in ["/o/n/resolve/main/f"] * 3 + ["/api/models/o/n"]]
    assert [reply.status for reply in replies] == [200, 200, 429, 200]
    left = [reply.headers["RateLimit"].split(";")[:2] for reply in replies]
    assert left == [
        ['"resolvers"', "r=1"],
        ['"resolvers"', "r=0"],
        ['"resolvers"', "r=0"],
        ['"api"', "r=0"],
    ]
    assert replies[3].headers["RateLimit-Policy"] == '"fixed window";"api";q=1;w=300'


# ---- the log ----


def test_the_log_has_the_request_the_bytes_sent_and_the_token(hub):
    hub.add("o/n", {"m.bin": bytes(1000)})
    hub.grant("hf_me")
    url = f"{hub.url}/o/n/resolve/main/m.bin?download=true"
    location = ask(url, Range="bytes=0-9", Authorization="Bearer hf_me").headers["Location"]
    ask(location, Range="bytes=0-9", Authorization="Bearer hf_me")
    first, second = hub.log
    assert (first.origin, first.path, first.query) == (
        Origin.HUB,
        "/o/n/resolve/main/m.bin",
        "download=true",
    )
    assert (first.method, first.range, first.status, first.fault) == ("GET", "bytes=0-9", 302, None)
    assert (second.origin, second.status, second.sent) == (Origin.STORAGE, 206, 10)
    assert (first.authorization, second.authorization) == ("Bearer hf_me", "Bearer hf_me")
    hub.reset_log()
    assert hub.log == ()


def test_blob_ids_are_those_of_git(hub):
    hub.add("o/n", {"hello": "hello\n", "m.bin": Sparse(b"", 5 * 10**9)})
    small, large = ask(f"{hub.url}/api/models/o/n?blobs=true").json["siblings"]
    assert small["blobId"] == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert "lfs" not in small
    assert (large["size"], large["lfs"]["size"]) == (5 * 10**9, 5 * 10**9)
    assert large["lfs"]["pointerSize"] == len(f"oid sha256:{'0' * 64}\nsize 5000000000\n") + 43

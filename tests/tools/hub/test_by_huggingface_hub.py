"""huggingface_hub itself is content with the Hub that the other tests talk to."""

import json
import struct
import subprocess
import sys

import pytest
from support.hub import Hub, Sparse
from support.hub.client import ask

BERT = "google-bert/bert-base-chinese"


def header(**shapes):
    """The head of a safetensors file of F32 tensors with these names and shapes."""
    at, tensors = 0, {}
    for name, shape in shapes.items():
        size = 4
        for length in shape:
            size *= length
        tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    packed = json.dumps(tensors).encode()
    return struct.pack("<Q", len(packed)) + packed


def run(code, env):
    done = subprocess.run(  # noqa: S603 (our own lines)
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_huggingface_hub_reads_a_single_file_by_its_legacy_name(hub, hub_env):
    files = {
        "config.json": '{"model_type": "bert"}',
        "model.safetensors": Sparse(header(a=[2, 3]), 999),
    }
    sha = hub.add(BERT, files, aliases=["bert-base-chinese"])
    code = """
import json, huggingface_hub as h
name = "bert-base-chinese"
meta = h.get_safetensors_metadata(name)
info = h.model_info(name, files_metadata=True)
config = open(h.hf_hub_download(name, "config.json")).read()
print(json.dumps([meta.sharded, meta.parameter_count, info.id, info.sha,
                  {s.rfilename: [s.size, s.lfs and s.lfs.size] for s in info.siblings},
                  info.config, info.safetensors.total, config]))
"""
    assert run(code, hub_env) == [
        False,
        {"F32": 6},
        BERT,
        sha,
        {"config.json": [22, None], "model.safetensors": [999, 999]},
        {"model_type": "bert"},
        6,
        '{"model_type": "bert"}',
    ]
    assert "/api/agent-harnesses" in {record.path for record in hub.log if record.status == 404}


@pytest.mark.parametrize("resolve_cache", [False, True])
def test_huggingface_hub_reads_a_sharded_model_at_a_revision(resolve_cache, hub_env):
    index = {
        "metadata": {"total_size": 36},
        "weight_map": {"a": "x.safetensors", "b": "y.safetensors"},
    }
    sharded = {
        "model.safetensors.index.json": json.dumps(index),
        "x.safetensors": Sparse(header(a=[2, 3]), 5 * 10**9),
        "y.safetensors": header(b=[3]) + bytes(12),
    }
    code = """
import json, huggingface_hub as h
meta = h.get_safetensors_metadata("o/n", revision="refs/pr/1")
whole = open(h.hf_hub_download("o/n", "y.safetensors", revision="refs/pr/1"), "rb").read()
print(json.dumps([meta.sharded, meta.metadata, meta.weight_map, meta.parameter_count, len(whole)]))
"""
    with Hub(resolve_cache=resolve_cache) as hub:
        hub.add("o/n", {"README.md": "nothing yet"}, refs={"refs/pr/1": sharded})
        env = hub_env | {"HF_ENDPOINT": hub.url}
        expected_size = len(sharded["y.safetensors"])
        assert run(code, env) == [
            True,
            {"total_size": 36},
            index["weight_map"],
            {"F32": 9},
            expected_size,
        ]
        assert max(record.sent for record in hub.log) == 100_001
        assert any("resolve-cache" in record.path for record in hub.log) == resolve_cache


def test_huggingface_hub_lists_page_by_page(hub, hub_env):
    for n in range(5):
        hub.add(f"org/m{n}", {"config.json": "{}"}, downloads=n, tags=["safetensors"])
    hub.add("other/m", {}, tags=["safetensors"])
    hub.add("org/hidden", {}, private=True, tags=["safetensors"])
    hub.add("org/untagged", {})
    code = """
import json, huggingface_hub as h
from huggingface_hub.utils import paginate
def names(**asked):
    return [[m.id, m.sha] for m in h.list_models(author="org", filter="safetensors", **asked)]
pages = paginate(h.constants.ENDPOINT + "/api/models", params={"limit": 3}, headers={})
print(json.dumps([names(sort="downloads"), names(search="M3", expand=["sha"]), names(limit=2),
                  [model["id"] for model in pages]]))
"""
    whole, found, two, paged = run(code, hub_env)
    assert [name for name, _ in whole] == ["org/m4", "org/m3", "org/m2", "org/m1", "org/m0"]
    assert found == [["org/m3", ask(f"{hub.url}/api/models/org/m3").json["sha"]]]
    assert len(two) == 2
    assert paged == [f"org/m{n}" for n in range(5)] + ["other/m", "org/untagged"]
    assert sum("limit=3" in record.query for record in hub.log) == 3


def test_huggingface_hub_lists_the_files_of_a_revision(hub, hub_env):
    files = {"config.json": "{}", "m.gguf": Sparse(b"GGUF", 5 * 10**9), "deep/er/a.txt": "abc"}
    hub.add("o/n", {}, refs={"refs/pr/1": files})
    code = """
import json, huggingface_hub as h
def listed(**how):
    found = h.list_repo_tree("o/n", revision="refs/pr/1", **how)
    return {f.path: [f.size, f.lfs and [f.lfs.size, len(f.lfs.sha256)]] for f in found}
print(json.dumps([listed(recursive=True), listed()]))
"""
    top = {"config.json": [2, None], "m.gguf": [5 * 10**9, [5 * 10**9, 64]]}
    assert run(code, hub_env) == [{**top, "deep/er/a.txt": [3, None]}, top]


def test_huggingface_hub_lists_the_commits_of_a_revision(hub, hub_env):
    first = hub.add("o/n", {})
    second = hub.push("o/n", {"a.txt": "a"}, authors=["alice", "bob"])
    code = """
import json, huggingface_hub as h
def listed(**how):
    return [[c.commit_id, c.authors] for c in h.list_repo_commits("o/n", **how)]
print(json.dumps([listed(), listed(revision=%r)]))
"""
    old = [first, ["o"]]
    assert run(code % first, hub_env) == [[[second, ["alice", "bob"]], old], [old]]


OUTCOMES = {
    ("o/open", "main", "config.json", None): "{}",
    ("o/open", "main", "absent.json", None): "RemoteEntryNotFoundError",
    ("o/open", "v9", "config.json", None): "RevisionNotFoundError",
    ("o/open", "main", "config.json", "hf_wrong"): "HfHubHTTPError",
    ("o/none", "main", "config.json", None): "RepositoryNotFoundError",
    ("o/none", "main", "config.json", "hf_reader"): "RepositoryNotFoundError",
    ("o/private", "main", "config.json", None): "RepositoryNotFoundError",
    ("o/private", "main", "config.json", "hf_other"): "RepositoryNotFoundError",
    ("o/private", "main", "config.json", "hf_reader"): "{}",
    ("o/gated", "main", "config.json", None): "GatedRepoError",
    ("o/gated", "main", "config.json", "hf_other"): "GatedRepoError",
    ("o/gated", "main", "config.json", "hf_reader"): "{}",
    ("o/disabled", "main", "config.json", None): "DisabledRepoError",
}


def test_huggingface_hub_names_each_refusal(hub, hub_env):
    for name in ("open", "private", "gated", "disabled"):
        settings = {"private": name == "private", "disabled": name == "disabled"}
        gated = "manual" if name == "gated" else False
        hub.add(f"o/{name}", {"config.json": "{}"}, gated=gated, **settings)
    hub.grant("hf_reader", "o/private", "o/gated")
    hub.grant("hf_other")
    code = f"""
import json, tempfile, huggingface_hub as h
def outcome(name, revision, file, token):
    try:
        with tempfile.TemporaryDirectory() as cache:
            url = h.hf_hub_url(name, file, revision=revision)
            h.get_hf_file_metadata(url, token=token or False)
            return open(h.hf_hub_download(name, file, revision=revision, token=token or False,
                                          cache_dir=cache)).read()
    except Exception as error:
        return type(error).__name__
print(json.dumps([outcome(*asked) for asked in {list(OUTCOMES)!r}]))
"""
    assert dict(zip(OUTCOMES, run(code, hub_env), strict=True)) == OUTCOMES

"""claim, through the real command: five published write-ups, each row right or refuted with why."""

import csv
import json
from math import prod
from pathlib import Path

import pytest
from support.builders import safetensors_bytes
from support.claim_generator import expected
from support.running import run

LARGE = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 21128,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
RIGHT, WRONG = "confirmed", "refuted"

# Part, claim, verdict, and the slips of the first explanation: name, module, difference.
BASE_UNCASED = (
    ("", "109,482,240", RIGHT, ()),
    ("trainable", "109482240", RIGHT, ()),
    ("embeddings", "23,837,184", RIGHT, ()),
    ("encoder", "85,645,056", WRONG, (("part-in-another", "pooler", 590_592),)),
    ("pooler", "0", WRONG, (("part-in-another", "pooler", -590_592),)),
)


LAYER_BY_LAYER = (
    ("word_embeddings", "21128 * 1024", RIGHT, ()),
    ("word_embeddings", "21,635,072", RIGHT, ()),
    ("token_type_embeddings", "2,048", RIGHT, ()),
    ("position_embeddings", "524,288", RIGHT, ()),
    ("embeddings.LayerNorm", "2,048", RIGHT, ()),
    ("embeddings", "22,163,456", RIGHT, ()),
    ("one layer attention", "4,198,400", RIGHT, ()),
    ("one layer attention", "4·(D² + D)", RIGHT, ()),
    ("encoder.layer.0.attention.output.LayerNorm", "2,048", RIGHT, ()),
    ("one layer ffn", "8,393,728", RIGHT, ()),
    ("one layer ffn", "(D·F + F) + (F·D + D)", RIGHT, ()),
    ("encoder.layer.23.output.LayerNorm", "2,048", RIGHT, ()),
    ("one layer", "12,596,224", RIGHT, ()),
    ("", "324,472,832", WRONG, (("part-left-out", "pooler", -1_049_600),)),
)


ATTENTION = "bert.encoder.layer.*.attention"
HAND_COUNT = (
    ("embeddings", "16,621,056", RIGHT, ()),
    (
        "attention",
        "2,359,296",
        WRONG,
        (("one-of-n", ATTENTION, -25_952_256), ("no-bias", ATTENTION, -36_864)),
    ),
    ("feed-forward", "56,623,104", WRONG, (("no-bias", "bert.encoder.layer.*", -46_080),)),
    ("LayerNorm", "38,400", RIGHT, ()),
    (
        "",
        "75,641,856",
        WRONG,
        (
            ("one-of-n", ATTENTION, -25_952_256),
            ("part-left-out", "cls", -613_256),
            ("no-bias", "bert.encoder.layer.*", -82_944),
        ),
    ),
    ("", "101,677,056", WRONG, (("part-left-out", "cls", -613_256),)),
)
TABLES = {
    "A": ("bert-base-uncased", "BertModel", BASE_UNCASED),
    "C": ("config.json", None, LAYER_BY_LAYER),
    "E": ("bert-base-chinese", None, HAND_COUNT),
}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LARGE))
    return str(path)


def verdicts(*args: str) -> list[dict]:
    done = run("claim", *args, "--source", "bundled", "--format", "json")
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("table", TABLES)
def test_each_row_of_a_published_count_is_right_or_wrong_for_its_reason(table, config, tmp_path):
    model, target, rows = TABLES[table]
    name = config if model == "config.json" else model
    file = tmp_path / "claims.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(("model", "part", "claim"))
        writer.writerows((name, part, text) for part, text, _, _ in rows)
    found = verdicts("--file", str(file), *(("--as", target) if target else ()))
    assert len(found) == len(rows)
    for (part, text, verdict, slips), observed in zip(rows, found, strict=True):
        assert (observed["part"], observed["text"]) == (part, text)
        assert observed["verdict"] == verdict, (part, text)
        first = observed["explanations"][0]["slips"] if observed["explanations"] else []
        said = tuple((one["slip"], one.get("module"), one["difference"]) for one in first)
        assert said == slips, (part, text)
        for one in observed["explanations"]:
            differences = sum(slip["difference"] for slip in one["slips"])
            assert differences == observed["claim"] - observed["actual"]


def test_a_count_divided_by_2_to_the_20_is_called_so():
    _, found = verdicts("bert-base-chinese", "75641856", "72.1 MB")
    assert found["verdict"] == WRONG
    assert found["note"] == "75641856 divided by 2^20, not by a million (binary-million)"
    (gibibytes,) = verdicts("bert-base-chinese", "390.2 MB")
    assert gibibytes["explanations"][0]["slips"][0]["slip"] == "binary-million"


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        (["109482240"], 0),
        (["437.9MB"], 0),
        (["109482240", "3B"], 1),
        (["--part", "vision tower=5"], 3),
        (["nonsense"], 3),
        ([], 2),
    ],
)
def test_the_exit_code_follows_the_verdict(claims, code):
    done = run("claim", "bert-base-uncased", *claims, "--as", "BertModel", "--source", "bundled")
    assert done.returncode == code, done.stdout


def test_a_claim_is_judged_with_other_values_of_the_config():
    large = ("hidden_size=1024", "num_hidden_layers=24", "num_attention_heads=16")
    settings = [f"--set={text}" for text in (*large, "intermediate_size=4096", "vocab_size=21128")]
    (found,) = verdicts("bert-base-chinese", "324,472,832", "--as=BertModel", *settings)
    assert found["actual"] == 324_472_832 + 1024 * 1024 + 1024


def test_people_read_the_arithmetic():
    done = run("claim", "bert-base-uncased", "108891648", "--as", "BertModel", "--source=bundled")
    assert done.stdout == (
        "refuted: 108891648 for bert-base-uncased\n"
        "  109,482,240 parameters\n"
        "  it is what one counts\n"
        "    109,482,240  truly\n"
        "       -590,592  without pooler (part-left-out)\n"
        "    108,891,648  claimed\n"
    )


def test_stored_elements_of_packed_weights_are_no_parameters(tmp_path: Path):
    """GPTQ, 4 bits: the Hub shows an 8B model as 1.99B."""
    values = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 64,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
    }
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
    stored: dict[str, tuple[str, tuple[int, ...]]] = {}
    for tensor in expected(values, "LlamaForCausalLM").tensors:
        if not tensor.name.endswith("_proj.weight"):
            stored[tensor.name] = ("F16", tensor.shape)
            continue
        module, (out, into) = tensor.name.removesuffix(".weight"), tensor.shape
        stored[f"{module}.qweight"] = ("I32", (into // 8, out))
        stored[f"{module}.qzeros"] = ("I32", (into // 128, out // 8))
        stored[f"{module}.scales"] = ("F16", (into // 128, out))
        stored[f"{module}.g_idx"] = ("I32", (into,))
    elements = sum(prod(shape) for _, shape in stored.values())
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(stored))
    config = {**values, "quantization_config": settings}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (found,) = verdicts(str(tmp_path), str(elements))
    assert found["verdict"] == WRONG
    (first, *_) = found["explanations"]
    assert [one["slip"] for one in first["slips"]] == ["elements-for-parameters"]

"""claim, through the real command: five published write-ups, each row right or refuted with why."""

import csv
import json
from math import prod
from pathlib import Path

from support.builders import safetensors_bytes
from support.claim_generator import expected
from support.running import run


def verdicts(*args: str) -> list[dict]:
    done = run("claim", *args, "--source", "bundled", "--format", "json")
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_claims_of_a_file_are_judged_in_their_order(tmp_path):
    rows = [("", "109482240"), ("embeddings", "V·D + L·D + T·D + 2·D"), ("pooler", "0")]
    file = tmp_path / "claims.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(("model", "part", "claim"))
        writer.writerows(("bert-base-uncased", part, text) for part, text in rows)
    found = verdicts("--file", str(file), "--as", "BertModel")
    assert [(one["part"], one["text"]) for one in found] == rows
    assert [one["verdict"] for one in found] == ["confirmed", "confirmed", "refuted"]


def test_a_count_divided_by_2_to_the_20_is_called_so():
    _, found = verdicts("bert-base-chinese", "75641856", "72.1 MB")
    assert found["note"] == "75641856 divided by 2^20, not by a million (binary-million)"


def test_a_text_that_is_not_a_count_gets_one_line(subtests):
    for text, said in [
        (
            "seven",
            "nothing to compare with: seven for bert: not a number: expected a count",
        ),
        ("1.0948224", "the number has no unit: expected 1.0948224M, B or 亿\n"),
        ("V*Q", "neither a number nor a formula: 'Q' is not a letter of this model's formula"),
        ("0.2177", "a share of the model, but no --part is named\n"),
    ]:
        with subtests.test(text=text, said=said):
            done = run("claim", "bert", text)
            assert done.returncode == 3
            assert said in done.stdout
            assert done.stdout.count("\n") == 1


def test_the_reading_of_an_ambiguous_count_is_printed():
    parts = ("--part=嵌入=0.2384", "--part=嵌入=0.2177", "--part=全部=1.0948224")
    printed = run("claim", "bert", "1,095M", *parts).stdout
    for line in (
        "read as 1,095,000,000 parameters, not as 1,095,000 parameters",
        "read as 23,840,000 parameters, not as a share of the model",
        "read as a share of the model, not as 21,770,000 parameters",
        "read as 109,482,240 parameters",
    ):
        assert line in printed


def test_the_exit_code_follows_the_verdict(subtests):
    for claims, code in [
        (["109482240"], 0),
        (["109482240", "3B"], 1),
        (["--part", "vision tower=5"], 3),
        ([], 2),
    ]:
        with subtests.test(claims=claims, code=code):
            done = run(
                "claim", "bert-base-uncased", *claims, "--as", "BertModel", "--source", "bundled"
            )
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
    (first, *_) = found["explanations"]
    assert [one["slip"] for one in first["slips"]] == ["elements-for-parameters"]

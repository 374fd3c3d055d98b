"""Sizes in names, on the Hub and in cards: what is a size, and what is not alarmed at."""

import csv
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from auditor.claims.published import (
    ModelCounts,
    OtherCounts,
    count_in_card,
    count_in_name,
    count_of_hub,
    sizes_in,
)

# Names as the Hub has them, and how many parameters the Hub or the model's card gives them.
KNOWN = Path(__file__).parents[2] / "data" / "known_names.csv"
MILLION, BILLION = 10**6, 10**9


def known():
    with KNOWN.open() as file:
        return [(row["name"], int(row["parameters"])) for row in csv.DictReader(file)]


# What else there is to count of some of them: without embeddings, and of the language model.
OTHERS = {
    "Falcon3-1B-Instruct": (1_669_408_768 - 2 * 131_072 * 2048,),
    "blip2-opt-2.7b": (2_651_596_800,),
}
EXPERTS = ("OLMoE-1B-7B-0924", "granite-3.0-1b-a400m-instruct")


def of(parameters, others=(), *, elements=None, packed=False, experts=False):
    return ModelCounts(
        parameters=parameters,
        expected=parameters,
        elements=parameters if elements is None else elements,
        packed=packed,
        others=lambda: OtherCounts(others, experts),
    )


def test_nobody_is_alarmed_by_a_name_that_is_right():
    for name, parameters in known():
        counts = of(parameters, OTHERS.get(name, ()), experts=name in EXPERTS)
        found = count_in_name(f"org/{name}", counts)
        assert found is None or found.verdict == "confirmed to its rounding", name


def test_nearly_all_of_those_names_state_a_size():
    assert sum(bool(sizes_in(name)) for name, _ in known()) > 0.9 * len(known())


OTHER_SIZES = [
    ("llama-7b", 13_015_864_320),
    ("llama-7b", 1_100_048_384),
    ("bert-110M", 66_985_530),
    ("Mixtral-8x7B-v0.1", 12_879_925_248),
    ("a-70b", 8_030_261_248),
    ("bloom-7b1", 3_002_557_440),
]


def test_a_name_of_another_size_is_refuted_with_both_numbers():
    for name, parameters in OTHER_SIZES:
        found = count_in_name(f"org/{name}", of(parameters))
        assert found.verdict == "refuted"
        assert found.text in found.reason
        assert f"{parameters:,}" in found.reason
        assert sizes_in(name) == sizes_in(f"org-70b/{name}")


NO_SIZES = [
    *("Phi-3.5-mini-instruct", "phi-1_5", "gpt-3.5", "claude-v2.5", "Qwen3.5", "model-128k"),
    *("glm-4-chat-1m", "LLaMA-1M", "opt-A3B", "gemma-3n-E2B", "CLIP-laion2B-s32B-b79K"),
    *("gpt2-10B-tokens", "pile-tokens-300B", "metaclip-b32-400m", "babylm-100M"),
    *("bloom-4bit", "x-8bit", "w4a16", "model-Q4_K_M", "exl2-4.0bpw", "vit-base-patch16-224"),
    *("tiny-random-Llama-7b", "Llama-3-8B-lora", "EAGLE-LLaMA3-Instruct-8B", "mit-b5"),
    *("wmt19-m", "2024-05-13", "yolov8m", "Llama-2-7b-draft", "laion-400m-clip"),
]


def test_a_number_that_is_not_a_size_of_this_model_yields_no_claim():
    assert [name for name in NO_SIZES if sizes_in(name)] == []


SIZES = [  # name, readings, experts
    ("Llama-2-7b", (7 * BILLION, 2_700_000_000), 0),
    ("opt-1-3b", (3 * BILLION, 1_300_000_000), 0),
    ("internlm2-1_8b", (8 * BILLION, 1_800_000_000), 0),
    ("bloom-7b1", (7_100_000_000,), 0),
    ("Mixtral-8x22B", (22 * BILLION,), 8),
    ("opt-350m", (350 * MILLION,), 0),
]


def test_a_size_is_read_as_people_write_it():
    for name, readings, experts in SIZES:
        [size] = sizes_in(name)
        assert (size.readings, size.experts) == (readings, experts)


@given(st.text(max_size=40))
def test_any_name_is_read_and_no_size_is_zero(name):
    for size in sizes_in(name):
        assert min(size.readings) > 0
        assert size.text in name


@given(st.integers(2, 900), st.floats(0.95, 1.05))
def test_a_number_of_billions_is_right_for_what_rounds_to_it(billions, share):
    parameters = int(billions * BILLION * share)
    assert count_in_name(f"x-{billions}b", of(parameters)).verdict != "refuted"
    assert count_in_name(f"x-{billions}b", of(2 * parameters)).verdict == "refuted"
    assert count_in_name(f"x-{billions}b", of(parameters // 2)).verdict == "refuted"


def test_the_hub_s_number_is_held_to_parameters_and_to_what_is_stored(subtests):
    for total, counts, verdict in [
        (8_030_261_248, of(8_030_261_248), "confirmed"),
        # gpt2 stores causal masks, which the Hub counts.
        (137_022_720, of(124_439_808, elements=137_022_720), "confirmed"),
        # 4 bits in words of 32, and what the Hub makes of them where it knows the packing.
        (1_990_000_000, of(8_030_261_248, elements=1_990_000_000, packed=True), "refuted"),
        (8_031_637_504, of(8_030_261_248, elements=1_990_000_000, packed=True), "confirmed"),
        (3_000_000_000, of(8_030_261_248), "refuted"),
    ]:
        with subtests.test(total=total, counts=counts, verdict=verdict):
            found = count_of_hub("safetensors.total", str(total), counts)
            assert (found.verdict, found.claim) == (verdict, total)
            assert ("packed" in found.reason) == (verdict == "refuted" and counts.packed)


def test_a_number_in_a_card_is_read_as_people_mean_it():
    right, wrong = ("7B", "6.74B", "6738415616"), ("13B", "13015864320")
    counts = of(6_738_415_616)
    judged = {text: count_in_card("cardData.parameters", text, counts) for text in (*right, *wrong)}
    assert {text for text, one in judged.items() if one.verdict == "refuted"} == set(wrong)
    for text in ("large", "4.7GB", "12", "10K<n<100K", "", "0.5", "21 %"):
        assert count_in_card("cardData.size", text, counts) is None

"""The first line of a comparison: it states what the evidence shows, and no more."""

import numpy as np
import pytest
from support.value_files import bf16, write_model

import auditor

SIZE, LAYERS = 64, 2
CONFIG = {"model_type": "llama", "hidden_size": SIZE, "num_hidden_layers": LAYERS}


def tensors(seed=0, size=SIZE, layers=LAYERS):
    rng = np.random.default_rng(seed)
    matrices = [
        "model.embed_tokens",
        *(f"model.layers.{n}.{part}" for n in range(layers) for part in ("q_proj", "v_proj")),
        "lm_head",
    ]
    return {f"{name}.weight": rng.standard_normal((size, size), np.float32) for name in matrices}


BASE = tensors()
TOWER = {f"vision_tower.layers.{n}.weight": np.ones((4, 4), np.float32) for n in range(3)}
MTP = {"mtp.layers.0.weight": np.ones((4, 4), np.float32)}


def changed(kind, difference):
    """The base with differences added to the weights of a kind of module."""
    return {name: one + difference() if kind in name else one for name, one in BASE.items()}


def of_rank(rank):
    rng = np.random.default_rng(rank)

    def difference():
        factors = rng.standard_normal((2, SIZE, rank))
        return (factors[0] @ factors[1].T / 100).astype(np.float32)

    return difference


def in_bf16(of):
    return {name: ("BF16", one.shape, bf16(one).tobytes()) for name, one in of.items()}


def summary(tmp_path, first, second, config=None, **options):
    before = write_model(tmp_path / "before", first, config=CONFIG)
    after = write_model(tmp_path / "after", second, config={**CONFIG, **(config or {})})
    return auditor.diff(before, after, **options).summary


@pytest.mark.parametrize(
    ("first", "second", "config", "parts"),
    [
        (BASE, BASE, {}, ["B is A: the same bytes in all 6."]),
        (
            BASE,
            changed("v_proj", of_rank(2)),
            {},
            ["B has the same tensors as A, other numbers in 2 of 6, all in v_proj."],
        ),
        (BASE | TOWER, BASE, {}, ["the same bytes in 6 of 9", "lost the vision tower"]),
        (BASE | MTP, BASE, {}, ["it lost layers that predict further tokens (mtp)"]),
        (BASE, tensors(layers=1), {"num_hidden_layers": 1}, ["lost a layer (model.layers.1)"]),
        (BASE, BASE | TOWER, {}, ["it has more: the vision tower (vision_tower)"]),
        (
            BASE,
            in_bf16(BASE),
            {"dtype": "bfloat16"},
            ["B has the tensors of A in BF16 (A is in F32); the converted numbers were not"],
        ),
        (
            BASE,
            tensors(size=32),
            {"hidden_size": 32},
            ["B is another size of the type llama", "hidden_size is 32, A has 64"],
        ),
        (BASE, TOWER, {"model_type": "clip"}, ["B is another architecture: clip, A is llama"]),
        (BASE, TOWER, {}, ["Cannot tell what B is of A: 0 of its 3 tensors"]),
        (BASE, TOWER, {"peft_type": "LORA"}, ["B is an adapter (LORA), not a model: audit B"]),
        (BASE, BASE, {"rope_theta": 7.0}, ["its config differs in rope_theta"]),
    ],
)
def test_the_first_line_says_what_the_second_is_of_the_first(
    tmp_path, first, second, config, parts
):
    line = summary(tmp_path, first, second, config)
    assert all(part in line for part in parts), line


# --- a merged adapter ---------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 4, 16])
def test_differences_of_low_rank_in_linear_weights_are_a_merged_lora(tmp_path, rank):
    line = summary(tmp_path, BASE, changed("_proj", of_rank(rank)), values=True)
    assert line.startswith("B is A merged with a LoRA: other numbers in 4 of 6")
    assert f"rank {rank} at most" in line


def few_rows():
    return np.eye(SIZE, dtype=np.float32) * (np.arange(SIZE) < 3)


@pytest.mark.parametrize(
    ("kind", "difference"),
    [
        ("_proj", of_rank(SIZE)),
        ("_proj", of_rank(17)),
        ("_proj", of_rank(1)),  # a direction that was removed has rank 1 as well
        ("_proj", few_rows),
        ("embed_tokens", of_rank(2)),
        ("lm_head", of_rank(2)),
    ],
    ids=["full", "rank 17", "rank 1", "few rows", "embeddings", "head"],
)
def test_other_differences_are_not_called_a_lora(tmp_path, kind, difference):
    line = summary(tmp_path, BASE, changed(kind, difference), values=True)
    assert line.startswith("B has the same tensors as A, other numbers")


def test_without_values_nothing_is_called_a_lora(tmp_path):
    assert "LoRA" not in summary(tmp_path, BASE, changed("_proj", of_rank(2)))


# --- another dtype ------------------------------------------------------------------------------


def test_sampled_numbers_show_whether_another_dtype_holds_the_same_model(tmp_path):
    line = summary(tmp_path, BASE, in_bf16(BASE), values=True)
    assert line.startswith("B is A in BF16 (A is in F32): the numbers sampled in 6 tensors differ")


def test_unrelated_numbers_in_another_dtype_are_other_numbers(tmp_path):
    line = summary(tmp_path, BASE, in_bf16(tensors(seed=1)), values=True)
    assert line.startswith("B has the tensors of A in BF16 (A is in F32), and other numbers in 6")


# --- config keys --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "keys"),
    [
        ({"rope_theta": 10000.0}, {"rope_parameters": {"rope_theta": 10000.0}}, []),
        ({"rope_parameters": {"rope_theta": 1.0}}, {"rope_theta": 2.0}, ["rope_theta"]),
        ({"torch_dtype": "float32"}, {"dtype": "float32"}, []),
        ({"rms_norm_eps": 1e-6}, {}, []),  # the default of LlamaConfig
        ({"rms_norm_eps": 1e-5}, {}, ["rms_norm_eps"]),
        ({"transformers_version": "4.1"}, {"transformers_version": "5.1"}, []),
    ],
)
def test_keys_are_compared_under_one_name_with_the_defaults_of_the_class(
    tmp_path, first, second, keys
):
    before = write_model(tmp_path / "before", BASE, config=CONFIG | first)
    after = write_model(tmp_path / "after", BASE, config=CONFIG | second)
    assert [one.key for one in auditor.diff(before, after).keys] == keys


def test_end_tokens_and_templates_of_other_files_are_compared(tmp_path):
    before = write_model(tmp_path / "before", BASE, config=CONFIG)
    after = write_model(tmp_path / "after", BASE, config=CONFIG)
    for folder, end, template in (("before", 1, "a"), ("after", 2, "b")):
        path = tmp_path / folder
        (path / "generation_config.json").write_text(f'{{"eos_token_id": {end}}}')
        (path / "chat_template.jinja").write_text(template)
    found = auditor.diff(before, after)
    changes = {one.key: (one.before, one.after) for one in found.keys}
    assert changes == {
        "generation_config.json: eos_token_id": (1, 2),
        "chat template default": ("a", "b"),
    }
    assert "chat template default" in found.summary
    assert not found.same

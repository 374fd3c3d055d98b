"""What each rule names in a small model whose layers were trained, and what it leaves alone."""

import json

import numpy as np
import pytest
from support.value_causes import causes_of
from support.value_files import bf16, write_numbers

import auditor

RNG = np.random.default_rng(0)
NAMES = ("attn.q", "attn.k", "mlp.up", "mlp.down")
UP, Q = "model.layers.1.mlp.up.weight", "model.layers.0.attn.q.weight"
ROWS = "model.embed_tokens.weight"


def drawn(*shape):
    """As an initializer leaves a matrix."""
    return (0.02 * RNG.standard_normal(shape)).astype(np.float32)


def trained(*shape):
    """Draws, and a change of low rank."""
    change = RNG.standard_normal((shape[0], 2)) @ RNG.standard_normal((2, shape[1]))
    return (drawn(*shape) + 0.01 * change).astype(np.float32)


def layers(make, norm):
    found = {}
    for layer in range(3):
        start = f"model.layers.{layer}"
        found |= {f"{start}.{name}.weight": make(64, 64) for name in NAMES}
        found[f"{start}.input_layernorm.weight"] = norm(64)
    return found


def nearly_one(count):
    return (1 + 0.1 * RNG.standard_normal(count)).astype(np.float32)


def ones(count):
    return np.ones(count, np.float32)


SOUND = layers(trained, nearly_one) | {ROWS: trained(128, 64)}
FRESH = layers(drawn, ones)


def of_layer(tensors, layer, part=""):
    start = f"model.layers.{layer}.{part}"
    return {name: one for name, one in tensors.items() if name.startswith(start)}


def with_zero(name, at):
    one = SOUND[name].copy()
    one[at] = 0
    return {name: one}


def with_numbers(name, share, value):
    one = SOUND[name].copy()
    one[np.random.default_rng(1).random(one.shape) < share] = value
    return {name: one}


def with_mean(rows, scale=0.0):
    one = SOUND[ROWS].copy()
    noise = scale * np.random.default_rng(1).standard_normal((rows, 64))
    one[-rows:] = one[:-rows].mean(0) + noise
    return {ROWS: one}


def copied(layer, other, part):
    moved = of_layer(SOUND, other, part)
    return {name.replace(f".{other}.", f".{layer}."): one for name, one in moved.items()}


COPIES = {*of_layer(SOUND, 0, "attn"), *of_layer(SOUND, 2, "attn")}
NORMS = [name for name in SOUND if "norm" in name]
FAULTS = {
    "a norm is zero": ({NORMS[1]: 0 * SOUND[NORMS[1]]}, "all-zero", NORMS[1:2]),
    "a constant": ({UP: np.full((64, 64), 0.5, np.float32)}, "constant-matrix", [UP]),
    "equal rows": ({UP: np.tile(SOUND[UP][3], (64, 1))}, "constant-matrix", [UP]),
    "upper half zero": (with_zero(UP, slice(32)), "part-zero", [UP]),
    "right half zero": (with_zero(UP, (slice(None), slice(32, 64))), "part-zero", [UP]),
    "subnormal numbers": (with_numbers(UP, 0.3, 1e-40), "subnormal", [UP]),
    "one outlier": (with_numbers(Q, 1e-4, 1e30), "outlier", [Q]),
    "a fresh layer": (of_layer(FRESH, 2), "untrained", of_layer(FRESH, 2)),
    "a copied module": (copied(2, 0, "attn"), "copied-modules", COPIES),
    "mean rows": (with_mean(4), "mean-rows", [ROWS]),
    "mean rows with the noise of transformers": (with_mean(4, 1e-6), "mean-rows", [ROWS]),
}


def audited(folder, tensors, **config):
    write_numbers(folder / "model.safetensors", tensors)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return auditor.audit(str(folder), values=True)


def test_nothing_is_said_of_a_trained_model_in_any_dtype(tmp_path):
    halves = {name: one.astype(np.float16) for name, one in SOUND.items()}
    brains = {name: ("BF16", one.shape, bf16(one).tobytes()) for name, one in SOUND.items()}
    for label, tensors in (("F32", SOUND), ("F16", halves), ("BF16", brains)):
        assert causes_of(audited(tmp_path / label, tensors)) == [], label


@pytest.mark.parametrize("label", FAULTS)
def test_a_fault_is_named_alone_with_its_tensors(tmp_path, label):
    changed, cause, names = FAULTS[label]
    outcome = audited(tmp_path, SOUND | changed)
    assert [(one.kind, {*one.names}) for one in outcome.findings] == [(cause, {*names})]


def test_all_layers_of_a_fresh_model_are_untrained(tmp_path):
    [finding] = audited(tmp_path, FRESH).findings
    assert (finding.kind, {*finding.names}) == ("untrained", {*FRESH})


def experts(make):
    return {
        f"model.layers.0.mlp.experts.{at}.{name}.weight": make(128, 160)
        for at in range(4)
        for name in ("up", "down")
    }


def test_an_untrained_expert_is_named_if_the_others_are_trained(tmp_path):
    sound = experts(trained)
    fresh = {name: one for name, one in experts(drawn).items() if ".2." in name}
    assert causes_of(audited(tmp_path / "a", sound)) == []
    [finding] = audited(tmp_path / "b", sound | fresh).findings
    assert (finding.kind, {*finding.names}) == ("untrained", {*fresh})


@pytest.mark.parametrize(("said", "dtype", "other"), [("F16", "BF16", 0), ("BF16", "F16", 1)])
def test_bytes_of_the_other_16_bit_dtype_are_mislabeled(tmp_path, said, dtype, other):
    raw = [bf16, lambda one: one.astype(np.float16)][other]
    tensors = {name: (said, one.shape, raw(one).tobytes()) for name, one in SOUND.items()}
    [finding] = audited(tmp_path, tensors).findings
    assert (finding.kind, finding.severity) == ("mislabeled-dtype", auditor.Severity.ERROR)
    assert {*finding.names} == {name for name, one in SOUND.items() if one.ndim > 1}
    assert f"the bytes are {dtype}" in finding.reason


@pytest.mark.parametrize(("model_type", "kinds"), [("gemma3", []), ("llama", ["all-zero"])])
def test_norms_to_which_the_class_adds_1_may_all_be_zero(tmp_path, model_type, kinds):
    zero = {name: 0 * SOUND[name] for name in NORMS}
    outcome = audited(tmp_path, SOUND | zero, model_type=model_type, architectures=["NoSuchModel"])
    assert [kind for kind, _ in causes_of(outcome)] == kinds


def test_dead_channels_are_no_flood_of_subnormal_numbers_and_no_block_of_zeros(tmp_path):
    one = SOUND[UP].copy()
    decays = 2.0 ** -np.linspace(0, 160, 32)
    one[::2] *= decays[:, None]
    rows = SOUND[Q].copy()
    rows[RNG.permutation(64)[:28]] = 0
    assert causes_of(audited(tmp_path, SOUND | {UP: one, Q: rows})) == []


def dead_channels():
    """A matrix and a kernel whose dead channels have numbers below the smallest normal one."""
    one, kernel = SOUND[UP].copy(), drawn(32, 32, 3, 3)
    one[RNG.permutation(64)[:28]] *= 1e-38
    kernel[:, RNG.permutation(32)[:12]] = 0
    return {UP: one, "conv.weight": kernel}


def copied_and_tuned():
    tuned = {name: one + drawn(*one.shape) / 4 for name, one in of_layer(SOUND, 0, "mlp").items()}
    return copied(2, 0, "attn") | {name.replace(".0.", ".2."): one for name, one in tuned.items()}


def factors():
    return {"attn.q_factor": np.exp2(0.4 * RNG.standard_normal((16, 64))).astype(np.float16)}


def dying_channels_in_bf16():
    """As F16, these bytes have an ordinary spread and one large number."""
    one = trained(64, 64) * 2.0 ** -RNG.uniform(0, 60, (64, 1)).astype(np.float32)
    one[:16] = trained(16, 64)
    one[0, 0] = 2
    return {UP: ("BF16", one.shape, bf16(one).tobytes())}


@pytest.mark.parametrize("make", [dead_channels, dying_channels_in_bf16, copied_and_tuned, factors])
def test_nothing_is_said_of_what_training_leaves(tmp_path, make):
    assert causes_of(audited(tmp_path, SOUND | make())) == []


def rounded(one):
    return (one.view(np.uint32) & 0xFFFF0000).view(np.float32)


@pytest.mark.parametrize("share", [0.05, 1 / 3])
def test_a_third_of_padded_numbers_is_named_and_a_twentieth_is_not(tmp_path, share):
    rng = np.random.default_rng(1)
    mixed = {
        name: np.where(rng.random(one.shape) < share, rounded(one), one)
        for name, one in SOUND.items()
        if one.ndim > 1
    }
    found = [one for one in audited(tmp_path, SOUND | mixed).findings if one.kind == "padded-dtype"]
    assert [{*one.names} for one in found] == ([{*mixed}] if share > 0.1 else [])


def test_numbers_that_f16_would_hold_are_not_called_bf16(tmp_path):
    widened = {name: one.astype(np.float16).astype(np.float32) for name, one in SOUND.items()}
    assert causes_of(audited(tmp_path, widened)) == []


@pytest.mark.parametrize("zero", [slice(16), slice(0, 32, 2)])
def test_half_of_the_scales_of_a_packed_weight_may_not_be_zero(tmp_path, zero):
    scales = np.ones((32, 1), np.float32)
    packed = {"a.weight": ("F8_E4M3", (32, 32), bytes(range(1, 65)) * 16), "a.weight_scale": scales}
    assert causes_of(audited(tmp_path / "a", packed)) == []
    scales = scales.copy()
    scales[zero] = 0
    [finding] = audited(tmp_path / "b", packed | {"a.weight_scale": scales}).findings
    assert (finding.kind, finding.names) == ("part-zero", ("a.weight_scale",))


def lora(idle):
    tensors = {}
    for layer in range(4):
        for tower in ("model.layers", "visual.blocks"):
            start = f"base_model.model.{tower}.{layer}.q_proj.lora_"
            tensors[f"{start}A.weight"] = drawn(4, 64)
            tensors[f"{start}B.weight"] = drawn(64, 4) * (f"{tower}.{layer}" not in idle)
    return tensors


@pytest.mark.parametrize(
    ("idle", "kinds"),
    [
        ({"model.layers.0", "model.layers.2"}, ["idle-modules"]),
        ({"model.layers.3"}, []),  # the last layer, which clip_skip leaves out
        ({f"visual.blocks.{at}" for at in range(4)}, []),  # a tower without an image to train on
    ],
)
def test_idle_modules_are_named_beside_trained_ones_of_their_tower(tmp_path, idle, kinds):
    write_numbers(tmp_path / "adapter_model.safetensors", lora(idle))
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "lora_alpha": 8}')
    outcome = auditor.audit(str(tmp_path), values=True)
    assert [kind for kind, _ in causes_of(outcome)] == kinds

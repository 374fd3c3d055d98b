"""Settings of packed weights that are other than the files hold, by modules of unlike widths."""

from support.checkpoints import expect, stored, stored_by
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.formats import View, terminal

LLAMA = {
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
CLASS = "LlamaForCausalLM"
GROUP, BITS = 128, 4  # one group for each linear but down_proj, which has two


def gptq():
    for one in stored_by(expect(CLASS, **LLAMA)):
        module = one.name.rpartition(".")[0]
        if "_proj" not in module:
            yield one
            continue
        rows, columns = one.shape
        yield stored(f"{module}.qweight", (columns * BITS // 32, rows), dtype="I32")
        yield stored(f"{module}.qzeros", (columns // GROUP, rows * BITS // 32), dtype="I32")
        yield stored(f"{module}.scales", (columns // GROUP, rows), dtype="F16")
        yield stored(f"{module}.g_idx", (columns,), dtype="I32")


def mlx():
    for one in stored_by(expect(CLASS, **LLAMA)):
        module = one.name.rpartition(".")[0]
        if len(one.shape) == 1:
            yield one
            continue
        rows, columns = one.shape
        yield stored(one.name, (rows, columns * BITS // 32), dtype="U32")
        for last in ("scales", "biases"):
            yield stored(f"{module}.{last}", (rows, columns // 64), dtype="F16")


def fp8(plain):
    for one in stored_by(expect(CLASS, **LLAMA)):
        if "_proj" not in one.name or plain in one.name:
            yield one
            continue
        yield stored(one.name, one.shape, dtype="F8_E4M3")
        yield stored(f"{one.name}_scale_inv", tuple(side // 64 for side in one.shape))


def diagnosed(tensors, **settings):
    shot = snapshot_of(list(tensors), **LLAMA, architectures=[CLASS], **settings)
    report = examine(shot, Options(requested="packed"))
    return [(one.cause, one.fields, len(one.findings)) for one in report.diagnosis], report


def test_a_group_is_as_long_as_the_widest_module_shows():
    for declared in (32, 256, -1):
        method = {"quant_method": "gptq", "bits": BITS, "group_size": declared, "desc_act": False}
        said, report = diagnosed(gptq(), quantization_config=method)
        bad = [one for one in report.findings if one.kind == "bad-quantization"]
        field = ("quantization_config.group_size", declared, GROUP)
        assert said == [("quantization-settings", (field,), len(bad))]


def test_another_method_is_named_though_most_modules_have_one_group():
    method = {"quant_method": "awq", "bits": BITS, "group_size": GROUP, "version": "gemm"}
    said, _ = diagnosed(gptq(), quantization_config=method)
    field = ("quantization_config.quant_method", "awq", "gptq")
    assert said == [("quantization-settings", (field,), 1)]


def test_a_method_that_is_not_named_is_not_called_none():
    settings = {"load_in_8bit": True}
    _, report = diagnosed(stored_by(expect(CLASS, **LLAMA)), quantization_config=settings)
    [found] = report.diagnosis
    assert found.summary == "the config declares packed weights, the files hold plain ones"
    assert "0 names" not in terminal.render(report, View())


def test_bits_are_set_wherever_the_config_says_them():
    places = ("quantization", "quantization_config")
    settings = {place: {"group_size": 64, "bits": 8} for place in places}
    [(cause, [(path, was, held)], _)], report = diagnosed(mlx(), **settings)
    assert (cause, path.rpartition(".")[2], was, held) == ("quantization-settings", "bits", 8, 4)
    [found] = report.diagnosis
    assert all(place in found.fix for place in places)


def test_linears_that_are_plain_belong_into_the_list_and_so_does_the_output_layer():
    method = {"quant_method": "fp8", "weight_block_size": [64, 64]}
    for declared in (None, ["lm_head"]):
        stated = {} if declared is None else {"modules_to_not_convert": declared}
        said, _ = diagnosed(fp8("o_proj"), quantization_config=method | stated)
        field = ("quantization_config.modules_to_not_convert", declared, ["lm_head", "o_proj"])
        assert said == [("quantization-settings", (field,), 1)]


FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": FLOAT8}},
    "ignore": ["lm_head"],
}


def compressed(plain):
    """Float8 weights with a scale for each row, except in modules whose names contain `plain`."""
    for one in stored_by(expect(CLASS, **LLAMA)):
        is_packed = "_proj" in one.name and plain not in one.name
        yield stored(one.name, one.shape, dtype="F8_E4M3" if is_packed else "BF16")
        if is_packed:
            yield stored(f"{one.name}_scale", (one.shape[0], 1), dtype="BF16")


def test_plain_modules_are_added_to_a_list_of_names_by_their_whole_names():
    """compressed-tensors compares an entry of `ignore` with the complete name of a module."""
    said, report = diagnosed(compressed("o_proj"), quantization_config=COMPRESSED)
    added = [f"model.layers.{layer}.self_attn.o_proj" for layer in (0, 1)]
    field = ("quantization_config.ignore", ["lm_head"], ["lm_head", *added])
    assert said == [("quantization-settings", (field,), 1)]
    assert report.diagnosis[0].fix.startswith("add model.layers.0.")


def test_a_plain_layer_at_the_end_may_be_one_for_drafting():
    said, _ = diagnosed(compressed("layers.1."), quantization_config=COMPRESSED)
    assert said == []


def test_packed_weights_of_an_unknown_layout_are_not_called_plain():
    """The scales of GPTQ-for-LLaMa's first format: (rows, 1), and one `zeros` beside them."""
    old = (
        one._replace(name=one.name.replace("qzeros", "zeros"), shape=one.shape[::-1])
        if one.name.endswith(("qzeros", "scales"))
        else one
        for one in gptq()
        if not one.name.endswith("g_idx")
    )
    settings = {"quant_method": "gptq", "bits": BITS, "group_size": GROUP}
    found, report = diagnosed(old, quantization_config=settings)
    assert (found, report.verdict) == ([], "findings")

"""A LoRA over a denoiser: which modules its keys meet, and with what prefix a loader finds them."""

from types import SimpleNamespace

import pytest
from support.libraries import needs

from auditor.reconciler.denoiser_lora import lora_notes, name_in_diffusers

TO_K = "up_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k"
ALIKE = TO_K.replace(".", "_")
SINGLE = "single_transformer_blocks.37.proj_mlp"


@pytest.mark.parametrize(
    ("name", "inputs", "base"),
    [
        (f"unet.{TO_K}.lora_A.weight", 768, "Stable Diffusion 1"),
        (f"unet.{TO_K}.lora_A.weight", 1024, "Stable Diffusion 2"),
        (f"unet.{TO_K}.lora.down.weight", 2048, "SDXL"),
        (f"lora_unet_{ALIKE}.lora_down.weight", 768, "Stable Diffusion 1"),
        (f"transformer.{SINGLE}.lora_A.weight", 3072, "Flux.1"),
        ("lora_unet_input_blocks_8_1_transformer_blocks_9_ff_net_2.lora_down.weight", 5120, "SDXL"),
        ("lora_unet_output_blocks_5_2_conv.lora_down.weight", 640, "SDXL"),
        ("lora_unet_label_emb_0_0.lora_down.weight", 2816, "SDXL"),
        ("lora_unet_double_blocks_18_txt_mlp_2.lora_down.weight", 12288, "Flux.1"),
        ("diffusion_model.single_blocks.0.linear2.lora_A.weight", 15360, "Flux.1"),
    ],
)
def test_the_base_is_that_whose_modules_have_the_names_and_widths(name, inputs, base):
    assert list(lora_notes({name: (4, inputs)})) == [f"1 of 1 modules of a denoiser are in {base}"]


def test_a_module_that_the_base_lacks_is_counted():
    matrices = {f"unet.{TO_K}.lora_A.weight": (4, 768), "unet.nowhere.lora_A.weight": (4, 768)}
    [note] = lora_notes(matrices)
    assert note.endswith(
        "1 of 2 modules of a denoiser are in Stable Diffusion 1; 1 have another name or width"
    )


def test_names_without_a_prefix_are_found_under_one():
    _, note = lora_notes({f"{TO_K}.lora_A.weight": (4, 768)})
    assert note.endswith("finds them as unet.NAME")


@pytest.mark.parametrize("shape", [(4, 5), (4,), None])
def test_a_width_of_no_base_has_no_note(shape):
    assert list(lora_notes({f"unet.{TO_K}.lora_A.weight": shape})) == []


def test_no_prefix_is_proposed_for_original_names():
    [note] = lora_notes({"double_blocks.0.img_attn.qkv.lora_A.weight": (4, 3072)})
    assert note.endswith("are in Flux.1")


# The modules of the blocks of SDXL that kohya trains: two resnets, an attention, a sampler.
RESNET = ("in_layers_2", "emb_layers_1", "out_layers_3", "skip_connection")
ATTENTION = (
    *("proj_in", "proj_out", "transformer_blocks_0_attn1_to_q", "transformer_blocks_1_attn2_to_k"),
    *("transformer_blocks_9_attn2_to_out_0", "transformer_blocks_0_ff_net_0_proj"),
)
OF_SDXL = [
    *("input_blocks_3_0_op", "input_blocks_6_0_op", "output_blocks_2_2_conv"),
    *("output_blocks_5_2_conv", "time_embed_0", "time_embed_2", "label_emb_0_0", "label_emb_0_2"),
    *("input_blocks_0_0", "out_2"),
    *(f"input_blocks_{n}_0_{part}" for n in (1, 2, 4, 5, 7, 8) for part in RESNET),
    *(f"input_blocks_{n}_1_{part}" for n in (4, 5, 7, 8) for part in ATTENTION),
    *(f"middle_block_{n}_{part}" for n in (0, 2) for part in RESNET),
    *(f"middle_block_1_{part}" for part in ATTENTION),
    *(f"output_blocks_{n}_0_{part}" for n in range(9) for part in RESNET),
    *(f"output_blocks_{n}_1_{part}" for n in range(6) for part in ATTENTION),
]


@pytest.mark.oracle
@needs("diffusers")
def test_names_of_sdxl_are_those_of_diffusers():
    from diffusers.loaders import lora_conversion_utils as judge  # noqa: PLC0415 - seconds

    for name in OF_SDXL:
        key = f"lora_unet_{name}.lora_down.weight"
        blocks = judge._maybe_map_sgm_blocks_to_diffusers  # noqa: SLF001 - the judge
        [mapped] = blocks({key: None}, SimpleNamespace(layers_per_block=2))
        renamed = judge._convert_unet_lora_key(mapped)  # noqa: SLF001 - the judge
        renamed = renamed.replace(".processor", "")
        module = renamed.partition("lora.down")[0].rstrip("._").replace(".", "_")
        assert name_in_diffusers(name).removesuffix("_0") == module.removesuffix("_0"), name


OF_FLUX = [
    *(
        f"double_blocks_1_{side}_{part}"
        for side in ("img", "txt")
        for part in ("attn_qkv", "attn_proj", "mlp_0", "mlp_2", "mod_lin")
    ),
    *("single_blocks_3_linear1", "single_blocks_3_linear2", "single_blocks_3_modulation_lin"),
]


@pytest.mark.oracle
@needs("diffusers")
@pytest.mark.parametrize("name", OF_FLUX)
def test_names_of_flux_are_those_of_diffusers(name):
    import torch  # noqa: PLC0415 - seconds
    from diffusers.loaders import lora_conversion_utils as judge  # noqa: PLC0415 - seconds

    state = {
        f"lora_unet_{name}.lora_down.weight": torch.zeros(4, 3072),
        f"lora_unet_{name}.lora_up.weight": torch.zeros(21504 if "linear1" in name else 9216, 4),
        f"lora_unet_{name}.alpha": torch.tensor(4.0),
    }
    converted = judge._convert_kohya_flux_lora_to_diffusers(state)  # noqa: SLF001 - the judge
    modules = {
        key.removeprefix("transformer.").partition(".lora_")[0].replace(".", "_")
        for key in converted
    }
    assert name_in_diffusers(name) in modules

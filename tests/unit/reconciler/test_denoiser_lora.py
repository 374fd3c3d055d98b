"""A LoRA over a denoiser: which modules its keys meet, and with what prefix a loader finds them."""

import pytest

from auditor.reconciler.denoiser_lora import lora_notes

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
        ("diffusion_model.middle_block.1.proj_in.lora_A.weight", 1280, "Stable Diffusion 1"),
        (
            "transformer.transformer_blocks.37.attn.to_q.lora_A.weight",
            2432,
            "Stable Diffusion 3.5 large",
        ),
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

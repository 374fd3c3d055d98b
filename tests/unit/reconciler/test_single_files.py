"""Single files without a config: their kind and base are told from the names of the tensors."""

import pytest
from support.builders import safetensors_bytes

from auditor import audit

UNET = "model.diffusion_model."
SKIP = f"{UNET}output_blocks.11.0.skip_connection.weight"
TEXT = f"{UNET}input_blocks.2.1.transformer_blocks.0.attn2.to_k.weight"
IN = f"{UNET}input_blocks.0.0.weight"
OPEN_CLIP = "model.transformer.resblocks.9.mlp.c_proj.bias"
VAE = "first_stage_model.quant_conv.bias"

FILES = {
    "Stable Diffusion 1": ({SKIP: (4, 2), TEXT: (4, 768), IN: (8, 4, 3, 3), VAE: (2,)}, ""),
    "Stable Diffusion 1 for inpainting": ({SKIP: (4, 2), IN: (8, 9, 3, 3)}, ""),
    "Stable Diffusion 2": ({SKIP: (4, 2), TEXT: (4, 1024), IN: (8, 4, 3, 3)}, ""),
    "SDXL": ({f"conditioner.embedders.1.{OPEN_CLIP}": (4,), TEXT: (4, 2048)}, ""),
    "SDXL's refiner": ({f"conditioner.embedders.0.{OPEN_CLIP}": (4,)}, ""),
    "Flux": ({"double_blocks.0.img_attn.norm.key_norm.scale": (4,)}, "1 of other parts"),
    "a LoRA as kohya writes it": (
        {
            "lora_unet_mid_block_attentions_0_proj_in.lora_down.weight": (4, 8),
            "lora_unet_mid_block_attentions_0_proj_in.lora_up.weight": (8, 4),
            "lora_te_text_model_encoder_layers_0_mlp_fc1.lora_down.weight": (4, 8),
        },
        "modules 1 of the denoiser, 1 of the text encoders",
    ),
    "a LoRA as diffusers writes it": (
        {"transformer.transformer_blocks.0.attn.to_q.lora_A.weight": (4, 8)},
        "modules 1 of the denoiser",
    ),
    "a LoRA as ComfyUI writes it": (
        {"diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight": (4, 8)},
        "modules 1 of the denoiser",
    ),
    "a consolidated checkpoint of Mistral": (
        {"tok_embeddings.weight": (4, 2), "layers.0.attention.wq.weight": (2, 2)},
        "2 of other parts",
    ),
}


def notes_of(tmp_path, shapes):
    file = tmp_path / "file.safetensors"
    file.write_bytes(safetensors_bytes({name: ("F16", shape) for name, shape in shapes.items()}))
    outcome = audit(str(file))
    assert outcome.verdict == "unaudited"
    return [note for note in outcome.notes if note.startswith("the names are those of")]


@pytest.mark.parametrize("kind", FILES)
def test_the_kind_of_a_file_is_in_its_notes(kind, tmp_path):
    shapes, counts = FILES[kind]
    [note] = notes_of(tmp_path, shapes)
    assert f"{kind}:" in note or f"{kind} " in note
    assert counts in note


def test_names_of_no_known_kind_have_no_note(tmp_path):
    assert notes_of(tmp_path, {"a.weight": (2, 2), "b.lora_A.weight": (2, 2)}) == []

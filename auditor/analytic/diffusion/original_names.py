"""The names that diffusers' tensors have in single files of the original models.

They are what the loaders of diffusers 0.42 rename (`from_single_file`). A table maps a module of
diffusers to a module of the original; in a name the longest module counts. Tensors of one original
name are parts of it, one below the other: queries, keys and values.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import product
from types import MappingProxyType

from auditor.analytic.expectation import ExpectedTensor, Role

_LAYERS = 3  # of a block: two resnets, or one more on the way up, and the sampler on the way down
_BLOCKS = range(4)
_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
_UNET = {
    "conv_in": "input_blocks.0.0",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "mid_block.attentions.0": "middle_block.1",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}


def _unet(names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of UNet2DConditionModel; `names` are those of diffusers."""
    resnets = {"mid_block.resnets.0": "middle_block.0", "mid_block.resnets.1": "middle_block.2"}
    yield from _UNET.items()
    for block, layer in product(_BLOCKS, range(_LAYERS)):
        down, up = _LAYERS * block + layer + 1, _LAYERS * block + layer
        resnets[f"down_blocks.{block}.resnets.{layer}"] = f"input_blocks.{down}.0"
        resnets[f"up_blocks.{block}.resnets.{layer}"] = f"output_blocks.{up}.0"
        yield f"down_blocks.{block}.attentions.{layer}", f"input_blocks.{down}.1"
        yield f"up_blocks.{block}.attentions.{layer}", f"output_blocks.{up}.1"
    for block in _BLOCKS:
        place = 2 if f"up_blocks.{block}.attentions.0.norm.weight" in names else 1
        first = _LAYERS * block
        yield f"down_blocks.{block}.downsamplers.0.conv", f"input_blocks.{first + 3}.0.op"
        yield f"up_blocks.{block}.upsamplers.0.conv", f"output_blocks.{first + 2}.{place}.conv"
    for (module, original), (part, in_original) in product(resnets.items(), _RESNET.items()):
        yield f"{module}.{part}", f"{original}.{in_original}"


_VAE_ATTENTION = {
    "group_norm": "norm",
    "to_q": "q",
    "to_k": "k",
    "to_v": "v",
    "to_out.0": "proj_out",
}


def _vae(_: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of AutoencoderKL; `up` counts from the outermost block."""
    resnets = dict[str, str]()
    for way in ("encoder", "decoder"):
        yield f"{way}.conv_norm_out", f"{way}.norm_out"
        for part, original in _VAE_ATTENTION.items():
            yield f"{way}.mid_block.attentions.0.{part}", f"{way}.mid.attn_1.{original}"
        for layer in range(2):
            resnets[f"{way}.mid_block.resnets.{layer}"] = f"{way}.mid.block_{layer + 1}"
    for block in _BLOCKS:
        down, up = f"encoder.down_blocks.{block}", f"decoder.up_blocks.{_BLOCKS[-1] - block}"
        yield f"{down}.downsamplers.0", f"encoder.down.{block}.downsample"
        yield f"{up}.upsamplers.0", f"decoder.up.{block}.upsample"
        for layer in range(_LAYERS):
            resnets[f"{down}.resnets.{layer}"] = f"encoder.down.{block}.block.{layer}"
            resnets[f"{up}.resnets.{layer}"] = f"decoder.up.{block}.block.{layer}"
    for module, original in resnets.items():
        yield module, original
        yield f"{module}.conv_shortcut", f"{original}.nin_shortcut"


_SD3 = {
    "pos_embed.proj": "x_embedder.proj",
    "pos_embed.pos_embed": "pos_embed",
    "time_text_embed.timestep_embedder.linear_1": "t_embedder.mlp.0",
    "time_text_embed.timestep_embedder.linear_2": "t_embedder.mlp.2",
    "time_text_embed.text_embedder.linear_1": "y_embedder.mlp.0",
    "time_text_embed.text_embedder.linear_2": "y_embedder.mlp.2",
    "norm_out.linear": "final_layer.adaLN_modulation.1",
    "proj_out": "final_layer.linear",
}
_SD3_BLOCK = {
    "norm1.linear": "x_block.adaLN_modulation.1",
    "norm1_context.linear": "context_block.adaLN_modulation.1",
    "ff.net.0.proj": "x_block.mlp.fc1",
    "ff.net.2": "x_block.mlp.fc2",
    "ff_context.net.0.proj": "context_block.mlp.fc1",
    "ff_context.net.2": "context_block.mlp.fc2",
    **{f"{name}.to_{one}": f"x_block.{name}.qkv" for name in ("attn", "attn2") for one in "qkv"},
    **{
        f"{name}.norm_{one}": f"x_block.{name}.ln_{one}"
        for name in ("attn", "attn2")
        for one in "qk"
    },
    **{f"{name}.to_out.0": f"x_block.{name}.proj" for name in ("attn", "attn2")},
    **{f"attn.add_{one}_proj": "context_block.attn.qkv" for one in "qkv"},
    **{f"attn.norm_added_{one}": f"context_block.attn.ln_{one}" for one in "qk"},
    "attn.to_add_out": "context_block.attn.proj",
}
_FLUX = {
    "x_embedder": "img_in",
    "context_embedder": "txt_in",
    **{
        f"time_text_embed.{module}.linear_{number}": f"{original}.{layer}"
        for module, original in (
            ("timestep_embedder", "time_in"),
            ("guidance_embedder", "guidance_in"),
            ("text_embedder", "vector_in"),
        )
        for number, layer in ((1, "in_layer"), (2, "out_layer"))
    },
    "norm_out.linear": "final_layer.adaLN_modulation.1",
    "proj_out": "final_layer.linear",
}
_FLUX_BLOCK = {
    "norm1.linear": "img_mod.lin",
    "norm1_context.linear": "txt_mod.lin",
    "ff.net.0.proj": "img_mlp.0",
    "ff.net.2": "img_mlp.2",
    "ff_context.net.0.proj": "txt_mlp.0",
    "ff_context.net.2": "txt_mlp.2",
    **{f"attn.to_{one}": "img_attn.qkv" for one in "qkv"},
    **{f"attn.add_{one}_proj": "txt_attn.qkv" for one in "qkv"},
    "attn.to_out.0": "img_attn.proj",
    "attn.to_add_out": "txt_attn.proj",
    "attn.norm_q.weight": "img_attn.norm.query_norm.scale",
    "attn.norm_k.weight": "img_attn.norm.key_norm.scale",
    "attn.norm_added_q.weight": "txt_attn.norm.query_norm.scale",
    "attn.norm_added_k.weight": "txt_attn.norm.key_norm.scale",
}
_FLUX_SINGLE = {
    "norm.linear": "modulation.lin",
    **{f"attn.to_{one}": "linear1" for one in "qkv"},
    "proj_mlp": "linear1",
    "proj_out": "linear2",
    "attn.norm_q.weight": "norm.query_norm.scale",
    "attn.norm_k.weight": "norm.key_norm.scale",
}


def _numbered(
    names: Iterable[str], blocks: str, original: str, parts: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of the parts of each block in a list."""
    start = f"{blocks}."
    numbers = {name.split(".")[1] for name in names if name.startswith(start)}
    for number, (part, in_original) in product(numbers, parts.items()):
        yield f"{start}{number}.{part}", f"{original}.{number}.{in_original}"


def _sd3(names: Collection[str]) -> Iterator[tuple[str, str]]:
    yield from _SD3.items()
    yield from _numbered(names, "transformer_blocks", "joint_blocks", _SD3_BLOCK)


def _flux(names: Collection[str]) -> Iterator[tuple[str, str]]:
    yield from _FLUX.items()
    yield from _numbered(names, "transformer_blocks", "double_blocks", _FLUX_BLOCK)
    yield from _numbered(names, "single_transformer_blocks", "single_blocks", _FLUX_SINGLE)


# Class of diffusers -> the pairs of modules (of diffusers, of the original).
_MODULES: Mapping[str, Callable[[Collection[str]], Iterator[tuple[str, str]]]] = MappingProxyType(
    {
        "AutoencoderKL": _vae,
        "FluxTransformer2DModel": _flux,
        "SD3Transformer2DModel": _sd3,
        "UNet2DConditionModel": _unet,
    }
)


def original_names(target: str, names: Collection[str]) -> dict[str, str]:
    """Map the names of a class of diffusers to the original names."""
    modules = dict(_MODULES[target](names))
    return {name: _renamed(name, modules) for name in names}


def _renamed(name: str, modules: Mapping[str, str]) -> str:
    module, rest = name, ""
    while module:
        if module in modules:
            return modules[module] + rest
        module, _, last = module.rpartition(".")
        rest = f".{last}{rest}"
    return name


def original_tensors(target: str, tensors: Collection[ExpectedTensor]) -> Iterator[ExpectedTensor]:
    """Yield the original tensors that hold the tensors of a class of diffusers.

    The VAE's attention is made of convolutions of 1 x 1, which diffusers reads as matrices.
    """
    parts: dict[str, list[ExpectedTensor]] = {}
    names = original_names(target, [one.name for one in tensors])
    for one in tensors:
        parts.setdefault(names[one.name], []).append(one)
    for name, group in parts.items():
        role = group[0].role if len(group) == 1 else Role.PARAMETER
        rows, *others = group[0].shape
        if len(group) > 1:
            rows = sum(one.shape[0] for one in group)
        points = (1, 1) if ".mid.attn_1." in name and others else ()
        elements = sum(one.elements for one in group)
        yield ExpectedTensor(name, (rows, *others, *points), elements, role)

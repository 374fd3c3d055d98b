"""Closed forms of open_clip's models: an image tower and a text tower with one output space.

`model_cfg` of open_clip_config.json has a config for each tower. The builders follow open_clip 3.3:
ViT, ResNet and timm towers for images, open_clip's own transformer or a model of transformers for
text, and CoCa's decoder. A value that a builder does not cover, or a key that open_clip does not
have, raises SourceError.
"""

from collections.abc import Mapping
from types import MappingProxyType

from auditor.analytic import catalogue, timm_table
from auditor.analytic.blocks import (
    BatchNorm,
    Block,
    Conv,
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Param,
    module,
    repeat,
    sequential,
)
from auditor.analytic.config import Config
from auditor.analytic.diffusion.keys import counts_by_block, outside, require, size
from auditor.analytic.diffusion.layers import layers_of
from auditor.analytic.dims import Dim
from auditor.analytic.expectation import Expectation
from auditor.analytic.family import Default, Family
from auditor.analytic.loading import Loading, Rule
from auditor.analytic.open_clip_text_models import TEXT_MODELS
from auditor.analytic.tree_expectation import tree_expectation
from auditor.errors import CheckpointError
from auditor.messages import described

_LETTERS = MappingProxyType(
    {"context_length": "L", "embed_dim": "E", "layers": "N", "vocab_size": "V", "width": "W"}
)
# Keys of a tower that no builder covers with another value.
_OF_BLOCKS: Mapping[str, Default] = MappingProxyType(
    {
        "block_type": None,
        "qk_norm": False,
        "scale_attn": False,
        "scale_attn_inner": False,
        "scale_fc": False,
        "scale_heads": False,
        "scaled_cosine_attn": False,
    }
)
# Arguments that a tower may pass to its norms and activations, and that shape no tensor.
_ARGUMENTS = MappingProxyType({"norm_kwargs": {"eps"}, "act_kwargs": {"approximate"}})
_TIMM_TOWER: Mapping[str, Default] = MappingProxyType(
    {
        "timm_model_name": None,
        "timm_model_pretrained": False,
        "timm_pool": "avg",
        "timm_proj": "linear",
        "timm_proj_bias": False,
        "timm_drop": 0.0,
        "timm_drop_path": None,
    }
)


def _family(model_type: str, own: Mapping[str, Default]) -> Family:
    return Family(model_type=model_type, prefix="", base="CLIP", letters=_LETTERS, own=own)


_MODEL = _family(
    "open_clip",
    {
        "embed_dim": None,
        "vision_cfg": None,
        "text_cfg": None,
        "multimodal_cfg": None,
        "custom_text": False,
        "quick_gelu": False,
        "init_logit_scale": None,
        "init_logit_bias": None,
        "nonscalar_logit_scale": False,
    },
)
_VISION = _family(
    "open_clip vision tower",
    {
        "layers": 12,
        "width": 768,
        "head_width": 64,
        "mlp_ratio": 4.0,
        "patch_size": 16,
        "image_size": 224,
        "ls_init_value": None,
        "patch_dropout": 0.0,
        "attentional_pool": False,
        "attn_pooler_queries": 256,
        "attn_pooler_heads": 8,
        "no_ln_pre": False,
        "pos_embed_type": "learnable",
        "final_ln_after_pool": False,
        "pool_type": "tok",
        "output_tokens": False,
        "act_kwargs": None,
        "norm_kwargs": None,
        **_OF_BLOCKS,
        **_TIMM_TOWER,
    },
)
_TEXT = _family(
    "open_clip text tower",
    {
        "context_length": 77,
        "vocab_size": 49408,
        "hf_tokenizer_name": None,
        "tokenizer_mode": None,
        "tokenizer_kwargs": None,
        "width": 512,
        "heads": 8,
        "layers": 12,
        "mlp_ratio": 4.0,
        "ls_init_value": None,
        "embed_cls": False,
        "pad_id": 0,
        "eos_id": 2,
        "no_causal_mask": False,
        "final_ln_after_pool": False,
        "pool_type": "argmax",
        "proj_bias": False,
        "proj_type": "linear",
        "output_tokens": False,
        "act_kwargs": None,
        "norm_kwargs": None,
        **_OF_BLOCKS,
        "hf_model_name": None,
        "hf_model_pretrained": True,
        "hf_proj_type": "mlp",
        "hf_pooler_type": "mean_pooler",
    },
)
_DECODER = _family(
    "open_clip decoder",
    {**_TEXT.own, "dim_head": 64, "n_queries": 256, "attn_pooler_heads": 8},
)
# Names of the text tower in CLIP, which open_clip moves below `text` for the other classes.
_MOVED = Rule(
    (r"^(text_projection|positional_embedding|token_embedding|transformer|ln_final)",),
    (r"text.\1",),
)


def model_config(config: Config) -> Config:
    """Return `model_cfg` of open_clip_config.json; raise CheckpointError if it is not an object."""
    return config.nested("model_cfg", _MODEL)


def class_name(config: Config) -> str:
    """Return the class that open_clip builds: CLIP, CustomTextCLIP or CoCa."""
    c = model_config(config)
    text = c.values.get("text_cfg")
    if not c.truth("custom_text") and not (isinstance(text, Mapping) and "hf_model_name" in text):
        return "CLIP"
    return "CoCa" if c.states("multimodal_cfg") else "CustomTextCLIP"


def expect_open_clip(config: Config, target: str) -> Expectation:
    """Return every tensor that open_clip_config.json implies for a class of open_clip.

    Raise SourceError for a key or a value without a closed form, and CheckpointError for a value of
    a wrong type.
    """
    c = _covered(model_config(config), _MODEL)
    for key in ("vision_cfg", "text_cfg"):
        if not c.states(key):
            raise CheckpointError(f"model_cfg has no {key}", key)
    text_config = _covered(c.nested("text_cfg", _TEXT), _TEXT)
    E = size(c, "embed_dim")
    is_own = text_config.attribute("hf_model_name") is None
    text = text_tower(text_config, E) if is_own else text_model(text_config, E)
    children: list[tuple[str, Block]] = [
        ("visual", image_tower(_covered(c.nested("vision_cfg", _VISION), _VISION), E))
    ]
    if target == "CLIP":
        require(c, "multimodal_cfg", None)
        children += (each for each in text.children if each[0] != "cls_emb")
    else:
        children.append(("text", text))
    if target == "CoCa":
        decoder = _covered(c.nested("multimodal_cfg", _DECODER), _DECODER)
        children.append(("text_decoder", text_decoder(decoder, size(text_config, "vocab_size"))))
    logit = Param((1,) if c.truth("nonscalar_logit_scale") else ())
    children.append(("logit_scale", logit))
    if c.states("init_logit_bias"):
        children.append(("logit_bias", logit))
    return tree_expectation(
        Module(tuple(children)),
        target,
        model_type="open_clip",
        loading=Loading(
            renames=(_MOVED,) if is_own and target != "CLIP" else (),
            legacy=(),
            buffers=(r"^text\.transformer\.embeddings\.position_ids$",),
        ),
    )


def _covered(c: Config, family: Family) -> Config:
    """Return the config; raise SourceError for a key that changes tensors in an unknown way."""
    for key in c.values:
        if key not in family.defaults:
            raise outside(c, key)
    for key in family.defaults.keys() & _OF_BLOCKS.keys():
        require(c, key, _OF_BLOCKS[key])
    for key, known in _ARGUMENTS.items():
        arguments = c.attribute(key)
        if isinstance(arguments, Mapping) and not known.issuperset(arguments):
            raise outside(c, key)
    return c


# --- the towers -----------------------------------------------------------------------------------


def image_tower(c: Config, E: Dim) -> Module:  # noqa: N803 - a letter of formulas
    if c.attribute("timm_model_name") is not None:
        return timm_tower(c, E)
    if isinstance(c.attribute("layers"), list):
        return resnet(c, E)
    W, (height, width), patch = size(c, "width"), _pair(c, "image_size"), _pair(c, "patch_size")
    places = height.floor(patch[0]) * width.floor(patch[1]) + 1
    require(c, "pos_embed_type", "learnable")
    pools = c.flag("attentional_pool")  # a string names a pooler that no checkpoint has
    pooled = E if pools else W
    return module(
        conv1=Conv(3, W, patch, bias=False),
        class_embedding=Param((W,)),
        positional_embedding=Param((places, W)),
        ln_pre=None if c.truth("no_ln_pre") else LayerNorm(W),
        transformer=transformer(c),
        attn_pool=pooler(c, E, W) if pools else None,
        ln_post=LayerNorm(pooled),
        proj=Param((pooled, E)),
    )


def _pair(c: Config, key: str) -> tuple[Dim, Dim]:
    height, width = c.pair(key)
    if height.value < 1 or width.value < 1:
        raise CheckpointError(f"{key} is {described(c.attribute(key))}, expected positive sizes")
    return height, width


def transformer(c: Config) -> Module:
    return module(resblocks=repeat(c.dim("layers"), lambda: block(c)))


def block(c: Config, *, crosses: bool = False) -> Module:
    W = size(c, "width")
    F = c.scaled("mlp_ratio", W)
    scale = module(gamma=Param((W,))) if c.present("ls_init_value") else None
    return module(
        ln_1=LayerNorm(W),
        ln_1_kv=LayerNorm(W) if crosses else None,
        attn=attention(W, W),
        ls_1=scale,
        ln_2=LayerNorm(W),
        mlp=module(c_fc=Linear(W, F), c_proj=Linear(F, W)),
        ls_2=scale,
    )


def attention(D: Dim, other: Dim) -> Module:  # noqa: N803 - a letter of formulas
    """Return torch's MultiheadAttention; `other` is the width of keys and values."""
    if other.value == D.value:
        weights = {"in_proj_weight": Param((3 * D, D))}
    else:
        weights = {
            "q_proj_weight": Param((D, D)),
            "k_proj_weight": Param((D, other)),
            "v_proj_weight": Param((D, other)),
        }
    return module(**weights, in_proj_bias=Param((3 * D,)), out_proj=Linear(D, D))


def pooler(c: Config, E: Dim, W: Dim) -> Module:  # noqa: N803 - letters of formulas
    return module(
        query=Param((size(c, "attn_pooler_queries"), E)),
        attn=attention(E, W),
        ln_q=LayerNorm(E),
        ln_k=LayerNorm(W),
    )


def resnet(c: Config, E: Dim) -> Module:  # noqa: N803 - a letter of formulas
    """Return CLIP's ResNet: three convolutions as its stem, and attention as its pooling."""
    W, half = size(c, "width"), size(c, "width").floor(2)
    stages: dict[str, Block] = {}
    inputs = W
    for place, count in enumerate(counts_by_block(c, "layers", 4)):
        planes = 2**place * W
        first, further = bottleneck(inputs, planes), bottleneck(4 * planes, planes)
        stages[f"layer{place + 1}"] = layers_of([first, *[further] * (count - 1)])
        inputs = 4 * planes
    side = size(c, "image_size").floor(32)
    return module(
        conv1=Conv(3, half, (3, 3), bias=False),
        bn1=BatchNorm(half),
        conv2=Conv(half, half, (3, 3), bias=False),
        bn2=BatchNorm(half),
        conv3=Conv(half, W, (3, 3), bias=False),
        bn3=BatchNorm(W),
        **stages,
        attnpool=module(
            positional_embedding=Param((side * side + 1, inputs)),
            q_proj=Linear(inputs, inputs),
            k_proj=Linear(inputs, inputs),
            v_proj=Linear(inputs, inputs),
            c_proj=Linear(inputs, E),
        ),
    )


def bottleneck(inputs: Dim, planes: Dim) -> Module:
    outputs = 4 * planes
    changes = inputs.value != outputs.value
    down = (Conv(inputs, outputs, (1, 1), bias=False), BatchNorm(outputs))
    return module(
        conv1=Conv(inputs, planes, (1, 1), bias=False),
        bn1=BatchNorm(planes),
        conv2=Conv(planes, planes, (3, 3), bias=False),
        bn2=BatchNorm(planes),
        conv3=Conv(planes, outputs, (1, 1), bias=False),
        bn3=BatchNorm(outputs),
        downsample=sequential(*down) if changes else None,
    )


# The poolings of a text model; the first one has a layer of its own.
_POOLERS = ("cls_pooler", "cls_last_hidden_state_pooler", "max_pooler", "mean_pooler")
# The poolings that are timm's own for an architecture, by words of its name: another pooling has
# other tensors. Before a projection of open_clip "" leaves the default.
_POOLS = MappingProxyType(
    {
        "avg": ("fastvit_",),
        "map": ("_siglip_", "vit_pe_core_"),
        "token": ("_patch14_clip_", "_patch16_clip_", "vit_base_mci_"),
    }
)


def timm_tower(c: Config, E: Dim) -> Module:  # noqa: N803 - a letter of formulas
    """Return a network of timm, whose classifier is replaced by a projection of open_clip."""
    name, pool, projection = (_word(c, f"timm_{key}") for key in ("model_name", "pool", "proj"))
    is_default = not pool and projection in {"linear", "mlp"}
    if not is_default and not any(word in name for word in _POOLS.get(pool, ())):
        raise outside(c, "timm_pool")
    if not projection:
        return module(trunk=timm_table.default_network(name, E.value))
    require(c, "timm_proj", "linear", "mlp", "none")
    trunk = timm_table.default_network(name, 0)
    if projection == "none":
        return module(trunk=trunk)
    width, bias = _classifier_width(name), c.flag("timm_proj_bias")
    if projection == "linear":
        return module(trunk=trunk, head=module(proj=Linear(width, E, bias=bias)))
    mlp = module(fc1=Linear(width, 2 * E), fc2=Linear(2 * E, E, bias=bias))
    return module(trunk=trunk, head=module(mlp=mlp))


def _word(c: Config, key: str) -> str:
    """Return a string; "" for null."""
    return c.text(key) if c.present(key) else ""


_CLASSES = 1_000_003  # a number of classes that no width equals


def _classifier_width(name: str) -> int:
    """Return the inputs of a network's classifier, the only layer with rows for classes."""
    listed = tree_expectation(timm_table.default_network(name, _CLASSES), name).tensors
    widths = {one.shape[1] for one in listed if len(one.shape) > 1 and one.shape[0] == _CLASSES}
    if len(widths) != 1:
        raise outside(Config(values={"timm_model_name": name}), "timm_model_name")
    return widths.pop()


def text_tower(c: Config, E: Dim) -> Module:  # noqa: N803 - a letter of formulas
    W, has_class = size(c, "width"), c.truth("embed_cls")
    positions = size(c, "context_length") + (1 if has_class else 0)
    projection: Block | None = Linear(W, E) if c.truth("proj_bias") else Param((W, E))
    return module(
        cls_emb=Param((W,)) if has_class else None,
        positional_embedding=Param((positions, W)),
        token_embedding=Embedding(size(c, "vocab_size"), W),
        transformer=transformer(c),
        ln_final=LayerNorm(W),
        text_projection=None if c.attribute("proj_type") == "none" else projection,
    )


def text_model(c: Config, E: Dim) -> Module:  # noqa: N803 - a letter of formulas
    """Return the encoder of a model of transformers, and the projection behind it."""
    values = TEXT_MODELS.get(c.text("hf_model_name").removeprefix("FacebookAI/"))
    if values is None:
        raise outside(c, "hf_model_name")
    require(c, "hf_pooler_type", None, *_POOLERS)
    require(c, "hf_proj_type", None, "linear", "mlp")
    pools = c.attribute("hf_pooler_type") == _POOLERS[0]
    of_model = catalogue.family(str(values["model_type"]))
    config = Config(values=values, arguments={"add_pooling_layer": pools}).of(of_model)
    tree = catalogue.block_tree(config, of_model.base)
    parts = dict(tree.children)
    if isinstance(encoder := parts.get("encoder"), Module) and "shared" in parts:
        tree = Module(tuple((dict(encoder.children) | {"embed_tokens": parts["shared"]}).items()))
    W = size(config, "d_model" if "shared" in parts else "hidden_size")
    half = (W + E).floor(2)
    projections: Mapping[str, Block] = {
        "linear": Linear(W, E, bias=False),
        "mlp": Module((("0", Linear(W, half, bias=False)), ("2", Linear(half, E, bias=False)))),
    }
    return module(transformer=tree, proj=projections.get(_word(c, "hf_proj_type")))


def text_decoder(c: Config, V: Dim) -> Module:  # noqa: N803 - a letter of formulas
    """Return CoCa's decoder, in which a block reads the image after each block of the text."""
    W = size(c, "width")
    require(c, "mlp_ratio", 4, 4.0)  # open_clip does not read it
    return module(
        resblocks=repeat(c.dim("layers"), lambda: block(c)),
        cross_attn=repeat(c.dim("layers"), lambda: block(c, crosses=True)),
        ln_final=LayerNorm(W),
        text_projection=Param((W, V)),
    )

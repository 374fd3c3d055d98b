"""Write tests/data/open_clip.jsonl: what open_clip builds of its configs, on torch's meta device.

It needs the packages of open_clip and transformers beside torch and timm: `pip install
open_clip_torch transformers`. The configs are the package's own and the random ones of the file.
Configs of text models, which open_clip downloads, are those of `auditor.analytic.open_clip`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from auditor.analytic.open_clip_text_models import TEXT_MODELS

PLACE = Path(__file__).resolve().parents[1] / "tests" / "data" / "open_clip.jsonl"


def main() -> None:
    lines = [json.dumps(fact(*each), separators=(",", ":")) for each in configs()]
    PLACE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def configs() -> Iterator[tuple[str, dict[str, Any]]]:
    import open_clip  # noqa: PLC0415 - no extra installs it

    for name in open_clip.list_models():
        yield name, open_clip.get_model_config(name)
    for line in PLACE.read_text(encoding="utf-8").splitlines():
        name, config, *_ = json.loads(line)
        if name.startswith("random"):
            yield name, config


def fact(name: str, config: Mapping[str, Any]) -> list[Any]:
    """Return name, config, class, tensors, learned parameters, and a digest of names and shapes."""
    import open_clip  # noqa: PLC0415 - no extra installs it
    import torch  # noqa: PLC0415 - beside it

    text = config["text_cfg"]
    kind = "CoCa" if "multimodal_cfg" in config else "CLIP"
    if kind == "CLIP" and (config.get("custom_text") or "hf_model_name" in text):
        kind = "CustomTextCLIP"
    arguments = {key: value for key, value in config.items() if key != "custom_text"}
    arguments["text_cfg"] = {**text, "hf_model_pretrained": False}
    open_clip.hf_model.AutoConfig.from_pretrained = config_of
    with torch.device("meta"):
        model = getattr(open_clip, kind)(**arguments)
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    text = "\n".join(f"{name} {shapes[name]}" for name in sorted(shapes))
    learned = sum(value.numel() for value in model.parameters())
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return [name, config, kind, len(shapes), learned, digest]


def config_of(name: str) -> Any:
    from transformers import AutoConfig  # noqa: PLC0415 - as above

    return AutoConfig.for_model(**TEXT_MODELS[name])


if __name__ == "__main__":
    main()

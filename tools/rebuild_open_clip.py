"""Write tests/data/open_clip.jsonl: what open_clip builds of its configs, on torch's meta device.

It needs the package of open_clip beside torch and timm: `pip install open_clip_torch`. The configs
are the package's own without a text tower of Hugging Face, and the random ones of the file.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PLACE = Path(__file__).resolve().parents[1] / "tests" / "data" / "open_clip.jsonl"


def main() -> None:
    lines = [json.dumps(fact(*each), separators=(",", ":")) for each in configs()]
    PLACE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def configs() -> Iterator[tuple[str, dict[str, Any]]]:
    import open_clip  # noqa: PLC0415 - no extra installs it

    for name in open_clip.list_models():
        config = open_clip.get_model_config(name)
        if "hf_model_name" not in config["text_cfg"]:
            yield name, config
    for line in PLACE.read_text(encoding="utf-8").splitlines():
        name, config, *_ = json.loads(line)
        if name.startswith("random"):
            yield name, config


def fact(name: str, config: Mapping[str, Any]) -> list[Any]:
    """Return name, config, class, tensors, learned parameters, and a digest of names and shapes."""
    import open_clip  # noqa: PLC0415 - no extra installs it
    import torch  # noqa: PLC0415 - beside it

    kind = "CoCa" if "multimodal_cfg" in config else "CLIP"
    if kind == "CLIP" and config.get("custom_text"):
        kind = "CustomTextCLIP"
    arguments = {key: value for key, value in config.items() if key != "custom_text"}
    with torch.device("meta"):
        model = getattr(open_clip, kind)(**arguments)
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    text = "\n".join(f"{name} {shapes[name]}" for name in sorted(shapes))
    learned = sum(value.numel() for value in model.parameters())
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return [name, config, kind, len(shapes), learned, digest]


if __name__ == "__main__":
    main()

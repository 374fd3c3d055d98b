"""Write auditor/data/processors.json: the processor classes of the installed transformers.

`classes` are all names that AutoImageProcessor, AutoVideoProcessor, AutoFeatureExtractor and
AutoProcessor find; `by_type` has, by model type, the classes that prepare its inputs; `tokenizers`
are the model types for which AutoTokenizer knows a class.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

PLACE = Path(__file__).resolve().parents[1] / "auditor" / "data" / "processors.json"
NAME = re.compile(r"[A-Z]\w*(?:Processor(?:Pil|Fast|WithLM)?|FeatureExtractor)")
KEYS = {
    "IMAGE_PROCESSOR_MAPPING_NAMES": "image_processor_type",
    "VIDEO_PROCESSOR_MAPPING_NAMES": "video_processor_type",
    "FEATURE_EXTRACTOR_MAPPING_NAMES": "feature_extractor_type",
    "PROCESSOR_MAPPING_NAMES": "processor_class",
}


def mappings() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (key, model type, classes) of the tables in the auto modules, read and not imported.

    The modules of images and videos cannot be imported without torchvision.
    """
    from transformers.models import auto  # noqa: PLC0415 - a second

    for file in sorted(Path(auto.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(name)], value=ast.Call(args=[ast.List() as table]))
                    | ast.AnnAssign(
                        target=ast.Name(name), value=ast.Call(args=[ast.List() as table])
                    )
                ) if key := KEYS.get(name.removeprefix("MISSING_")):
                    for model_type, value in ast.literal_eval(table):
                        classes = value.values() if isinstance(value, dict) else (value,)
                        yield key, model_type, tuple(filter(None, classes))


def processors() -> dict[str, object]:
    import transformers  # noqa: PLC0415 - a second
    from transformers.models.auto.tokenization_auto import (  # noqa: PLC0415 - a second
        TOKENIZER_MAPPING_NAMES,
    )

    names = set(filter(NAME.fullmatch, dir(transformers)))
    by_type: dict[str, dict[str, str]] = {}
    for key, model_type, classes in mappings():
        names.update(classes)
        if classes:
            by_type.setdefault(model_type, {})[key] = classes[0]
    return {
        "transformers": transformers.__version__,
        "classes": sorted(names),
        "by_type": dict(sorted(by_type.items())),
        "tokenizers": sorted(TOKENIZER_MAPPING_NAMES),
    }


def main() -> None:
    known = processors()
    lines = [
        f' "transformers": {json.dumps(known["transformers"])}',
        f' "classes": {json.dumps(known["classes"])}',
        ' "by_type": {\n'
        + ",\n".join(
            f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in known["by_type"].items()
        )
        + "\n }",
        f' "tokenizers": {json.dumps(known["tokenizers"])}',
    ]
    PLACE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

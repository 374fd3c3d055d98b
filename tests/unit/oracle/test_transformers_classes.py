"""What is read from the source of transformers is what transformers says of itself."""

from collections import defaultdict

import pytest

from auditor.oracle.transformers_classes import (
    InstalledLibrary,
    classes_by_model_type,
    installed_library,
)

SOURCE = """
from collections import OrderedDict

MODEL_MAPPING_NAMES = OrderedDict([("funnel", ("FunnelModel", "FunnelBaseModel"))])
MODEL_FOR_A_MAPPING_NAMES = OrderedDict(
    [
        # Model for A
        *list(MODEL_MAPPING_NAMES.items()),
        ("funnel", "FunnelForA"),
        ("other", "OtherForA"),
    ]
)
CONFIG_MAPPING_NAMES = OrderedDict([("funnel", "FunnelConfig")])
MODEL_MAPPING = _LazyAutoMapping(CONFIG_MAPPING_NAMES, MODEL_MAPPING_NAMES)
"""


def test_the_classes_of_a_type_are_those_of_all_mappings_the_base_class_first() -> None:
    assert classes_by_model_type(SOURCE) == {
        "funnel": ("FunnelModel", "FunnelBaseModel", "FunnelForA"),
        "other": ("OtherForA",),
    }
    assert classes_by_model_type("MODEL_MAPPING_NAMES = {}") == {}


@pytest.fixture
def library(tmp_path) -> InstalledLibrary:
    folder = tmp_path / "models" / "funnel"
    folder.mkdir(parents=True)
    (folder / "modeling_funnel.py").write_text(
        "\nclass FunnelReader(FunnelBase):\n    pass\n\nclass FunnelLayer(Module):\n    pass\n"
        '\nclass FunnelPreTrainedModel(PreTrainedModel):\n    pass\n\n__all__ = ["FunnelReader", '
        '"FunnelPreTrainedModel"]\n'
    )
    (folder / "configuration_funnel.py").write_text(
        'class One(Config):\n    model_type = "funnel"\n\nclass Two(Config):\n'
        '    model_type: str = "funnel_tower"\n'
    )
    return InstalledLibrary("transformers 0", tmp_path, classes_by_model_type(SOURCE))


TYPES = {
    "FunnelModel": ("funnel",),
    "OtherForA": ("other",),
    "FunnelReader": ("funnel", "funnel_tower"),
    "FunnelLayer": (),  # is not exported
    "FunnelPreTrainedModel": (),  # has no tensors of its own
    "NoSuch": (),
    "": (),
    "FunnelModel\n": (),
    "F" * 10_000: (),
    "../funnel": (),
}


def test_a_class_belongs_to_the_types_that_list_it_or_its_siblings(library) -> None:
    assert {name: library.types(name) for name in TYPES} == TYPES


@pytest.mark.oracle
def test_reading_the_source_finds_what_an_import_finds() -> None:
    from transformers.models.auto import modeling_auto  # noqa: PLC0415 - seconds, for this test

    theirs: dict[str, set[str]] = defaultdict(set)
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES"):
            for model_type, classes in mapping.items():
                theirs[model_type].update([classes] if isinstance(classes, str) else classes)
    library = installed_library()
    assert library is not None
    assert {model_type: set(found) for model_type, found in library.listed.items()} == theirs
    for model_type, base in modeling_auto.MODEL_MAPPING_NAMES.items():
        assert library.listed[model_type][0] == (base if isinstance(base, str) else base[0])


@pytest.mark.oracle
def test_the_types_of_a_class_are_those_of_the_installed_library() -> None:
    library = installed_library()
    assert library is not None
    assert set(library.types("DPRReader")) == {"dpr"}
    assert set(library.types("CLIPTextModel")) == {"clip_text_model", "clip", "clip_vision_model"}

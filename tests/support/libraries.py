"""Libraries of models that an environment may lack, and what timm needs to be imported."""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import pytest


def needs(library):
    reason = f"{library} is not installed: make test installs it"
    return pytest.mark.skipif(find_spec(library) is None, reason=reason)


def with_timm() -> None:
    """Let timm be imported with a torch for the CPU alone, for which PyPI has no torchvision.

    timm takes one class and its transforms of images from torchvision; no architecture uses them.
    """
    if find_spec("timm") is None or "timm" in sys.modules or find_spec("torchvision") is not None:
        return
    import torch  # noqa: PLC0415 - seconds

    class Named(type):  # InterpolationMode.NEAREST is "NEAREST"
        def __getattr__(cls, name: str) -> str:
            if name.startswith("_"):
                raise AttributeError(name)
            return name

    class StandIn(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name.startswith("__"):
                raise AttributeError(name)
            return Named(name, (torch.nn.Module,), {})

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> ModuleSpec | None:
            is_asked = name.partition(".")[0] == "torchvision"
            return ModuleSpec(name, Finder, is_package=True) if is_asked else None

        @staticmethod
        def create_module(spec: ModuleSpec) -> ModuleType:
            return StandIn(spec.name)

        @staticmethod
        def exec_module(_: ModuleType) -> None:
            pass

    sys.meta_path.append(Finder)
    import timm  # noqa: F401, PLC0415 - while there is a stand-in

    sys.meta_path.remove(Finder)  # transformers looks for torchvision, too
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]

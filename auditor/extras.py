"""The optional libraries, by the extra of the package that brings them, and how to install them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

# A test compares these with the extras of pyproject.toml.
LIBRARIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "frames": ("pandas",),
        "oracle": ("torch", "transformers"),
        "diffusers": ("torch", "transformers", "diffusers"),
        "timm": ("torch", "timm"),
        "parquet": ("pyarrow",),
        "values": ("numpy",),
        "cluster": ("dask[distributed]",),
        "sign": ("securesystemslib[crypto]", "sigstore"),
    }
)


def install(*extras: str) -> str:
    """Return the command that adds the libraries of some extras to this environment.

    It names the libraries, because the package itself may not be in any index.
    """
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").exists():
        program = "pipx inject hf-audit"
    elif (prefix / "uv-receipt.toml").exists():  # of `uv tool install`, without pip
        program = f'uv pip install --python "{prefix}"'
    else:
        program = "pip install"
    libraries = dict.fromkeys(library for extra in extras for library in LIBRARIES[extra])
    return " ".join([program, *(f'"{one}"' if "[" in one else one for one in libraries)])

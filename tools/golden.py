"""The golden files of all formats: `python tests/formats/golden.py` writes them anew."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from formats.examples import EXAMPLES

from auditor.formats import FORMATS, View

FOLDER = Path(__file__).parent.parent / "data" / "golden"


def golden():
    """File name -> text, for every example in every format."""
    view = View()
    return {
        f"{name}.{file}": text
        for name, example in EXAMPLES.items()
        for form in FORMATS.values()
        for file, text in form([example()], view).items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in golden().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="")

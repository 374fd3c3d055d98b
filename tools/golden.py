"""The golden files of all formats: `make rewrite` writes them anew, and the documents with them."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from support.first_screens import first_screens
from support.outcomes.examples import EXAMPLES
from support.walks import WALKS, screens

from auditor.formats import View
from auditor.formats.registry import FORMATS

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "golden"
SCREENS = FOLDER.parent / "first_screens.txt"
WALKED = FOLDER.parent / "walks"

STYLE = re.compile(r"(?<=<style>).*?(?=</style>)|(?<='sha256-)[^']+", re.DOTALL)


def golden() -> dict[str, str]:
    """File name -> text, for every example in every format; styles are files of their own."""
    view = View()
    return {
        f"{name}.{file}": STYLE.sub("", text)
        for name, example in EXAMPLES.items()
        for form in FORMATS.values()
        for file, text in form([example()], view).items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place:
        SCREENS.write_text(first_screens(Path(place)), encoding="utf-8", newline="")
    WALKED.mkdir(exist_ok=True)
    for name, walk in WALKS.items():
        (WALKED / f"{name}.txt").write_text(screens(walk), encoding="utf-8", newline="")
    for name, text in golden().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="")

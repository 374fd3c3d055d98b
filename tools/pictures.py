"""The pictures of the documents: `python tools/pictures.py`, which needs Chromium.

A sound model and a broken one (a compiled BERT, whose state dict was saved as it is), on a terminal
and as a page, and the page of a night over models of which some have faults.
"""

import base64
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from rich.console import Console
from rich.text import Text
from support.changes import with_names
from support.chromium import browser
from support.nightly_stores import store_of
from support.sweep_models import planted

from auditor import Report, Unaudited
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.downloader import bundled, local_folder
from auditor.downloader.model_argument import HubModel
from auditor.formats import View, as_json, terminal
from auditor.formats.registry import FORMATS
from auditor.sweep.reporting.night import Wanted, write_night

PLACE = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH = 88  # columns of a terminal
PAGE, NIGHT = (1100, 900), (1280, 1000)  # pixels
MODELS = 60


def main() -> None:
    PLACE.mkdir(exist_ok=True)
    sound = bundled.read(HubModel(id="google-bert/bert-base-chinese"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        pages = {}
        for label, snapshot in (("bert", sound), ("broken", compiled(sound))):
            report = examine(snapshot, Options(requested=snapshot.model))
            (PLACE / f"{label}.svg").write_text(on_terminal(report))
            [text] = FORMATS["html"]([report], View()).values()
            pages[f"{label}-page"] = (folder / f"{label}.html", PAGE)
            pages[f"{label}-page"][0].write_text(text)
        pages["night"] = (night(folder), NIGHT)
        with browser(folder / "profile") as page:
            for label, (file, (width, height)) in pages.items():
                page.open(file, width=width, height=height)
                shot = page.call("Page.captureScreenshot", format="png")["data"]
                (PLACE / f"{label}.png").write_bytes(base64.b64decode(shot))


def compiled(snapshot: Snapshot) -> Snapshot:
    """The same model as torch.compile leaves its state dict."""
    names = [tensor.name for head in snapshot.headers for tensor in head.parsed.tensors]
    renamed = with_names(snapshot, {name: f"_orig_mod.{name}" for name in names})
    return replace(
        renamed, model="somebody/bert-finetuned", source=Source.HUB, origin="read from the Hub"
    )


def on_terminal(report: Report | Unaudited) -> str:
    """What a terminal shows, as a drawing of one."""
    text = terminal.render(report, View(color=True, width=WIDTH))
    console = Console(record=True, file=io.StringIO(), width=WIDTH, force_terminal=True)
    console.print(Text.from_ansi(text))
    return console.export_svg(title=f"audit {report.requested}")


def night(folder: Path) -> Path:
    """The page of a second night: models with a fault each, which the first one did not have."""
    nights: list[list[dict[str, Any]]] = [[], []]
    for model, files, fault in planted(MODELS):
        place = folder / "models" / model
        place.mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
        report = examine(local_folder.read(place, model), Options(requested=model))
        outcome = {**as_json.as_object(report), "model": model, "source": "hub", "commit": "5" * 40}
        outcome = json.loads(json.dumps(outcome))
        nights[1].append(outcome)
        if not fault:
            nights[0].append(outcome)
    pushed = {"pushed": "2026-11-20T23:40:05Z", "authors": "alice"}
    store = store_of(
        folder / "sweep.sqlite", {"2026-11-20": nights[0], "2026-11-21": nights[1]}, **pushed
    )
    write_night(store, wanted=Wanted(folder=folder / "out"))
    return folder / "out" / "index.html"


if __name__ == "__main__":
    main()

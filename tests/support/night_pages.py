"""The page of a night, written of outcomes, and names that no page may take for markup."""

from support.nightly_stores import store_of

from auditor.sweep.reporting.night import Wanted, write_night

NASTY = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "'\"><svg onload=alert(3)>",
    "\u202egnp.exe",
    "\u05e9\u05dc\u05d5\u05dd/\u0645\u0631\u062d\u0628\u0627",
    "@models@$night${script}",
    "a\u2028b\u0000c",
)


def written_page(folder, nights, depth=None):
    """The file; the table of modules beside it has so many levels."""
    folder.mkdir(exist_ok=True)
    store = store_of(folder / "sweep.sqlite", nights)
    write_night(store, wanted=Wanted(folder=folder / "out", depth=depth))
    return folder / "out" / "index.html"

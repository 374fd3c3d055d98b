"""The audit inside the page: the package as it is, with the browser's requests for the Hub."""

import os
import sys
import time

from auditor.audit.pipeline import audit
from auditor.errors import UsageError
from auditor.formats import View
from auditor.formats.registry import FORMATS

if not hasattr(time, "thread_time"):  # Python in a browser, whose only thread is the process
    time.thread_time = time.process_time


def audited(model: str, endpoint: str, folder: str) -> tuple[str, str]:
    """Audit a model; return the report as JSON and as HTML.

    It is a folder inside `folder`, or on the Hub if `folder` is "". Raise UsageError for an id that
    cannot be audited.
    """
    import hub_by_browser  # noqa: PLC0415 - beside this file in the page

    hub_by_browser.settings["endpoint"] = endpoint
    for name in ("hub", "hub_settings"):
        sys.modules[f"auditor.downloader.{name}"] = hub_by_browser
    if folder:
        os.chdir(folder)
    if bool(folder) != os.path.lexists(model):  # an id is no path of the page's file system
        raise UsageError("expected the id of a model on the Hub, or a folder")
    outcome = audit(model)
    [json] = FORMATS["json"]([outcome], View()).values()
    [html] = FORMATS["html"]([outcome], View()).values()
    return json, html

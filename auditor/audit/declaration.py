"""Declaration: what a checkpoint says that it should hold. A value, made by `said`."""

from typing import NamedTuple

from auditor.analytic import Config
from auditor.analytic.repository_loader import Loader
from auditor.layouts.packing import Declared
from auditor.reconciler.findings import Finding


class Declaration(NamedTuple):
    """A config, and what was said together with it."""

    config: Config
    target: str | None = None  # the class to audit for, where it is not the declared one
    declared: Declared | None = None  # the layout, where the config itself does not say it
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()  # about the files that say it
    loader: Loader | None = None  # who builds it, where that is not the config's architectures
    custom_class: str | None = None  # of the repository's own code, which its auto_map names

"""Selects a long list into a store, and audits nothing: `python -m benching.selecting STORE`."""

import sys
from pathlib import Path

from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.rate_limits import RateLimiter
from auditor.sweep.selection import Selector
from auditor.sweep.settings import ModelSelection, Policy
from auditor.sweep.store.ledger import StoreWriter


def main() -> None:
    with (
        StoreWriter.open(Path(sys.argv[1])) as ledger,
        Selector(Policy(), None, RateLimiter()) as selector,
    ):
        night = ledger.begin("n1", "[]", current_versions())
        plan = ledger.new_plan(night.night)
        for page in selector.pages(ModelSelection(author="bench")):
            ledger.add(night, plan, page)
        print(ledger.count(ledger.freeze(night.night, plan)))


if __name__ == "__main__":
    main()

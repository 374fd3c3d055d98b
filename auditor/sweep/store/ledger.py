"""The writing side of a store: nights, plans and outcomes, each step one transaction."""

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from msgspec.structs import asdict

from auditor.errors import UsageError
from auditor.messages import quoted
from auditor.sweep.store.opening import open_store
from auditor.sweep.store.packing import Kept, Shared, compress_text
from auditor.sweep.store.reading import Night, Planned, Recorded, Store, Versions, now
from auditor.sweep.store.schema import SUMMARY

_BATCH = 64  # models a query; each may bring a snapshot of some kB
_COLUMNS = (*SUMMARY, "recorded", "content", "shared")
_WRITTEN = ", ".join(_COLUMNS)
_MARKS = ", ".join("?" for _ in _COLUMNS)
_LARGEST = (1 << 63) - 1  # number that SQLite stores


class Waiting(NamedTuple):
    """A planned model without an outcome, and what there is to make one of."""

    model: str
    commit_sha: str
    snapshot: bytes | None  # packed
    listing: bytes | None  # packed
    shared: bytes | None = None  # packed: the rest of the snapshot; None: that is all of it


class FoundModel(NamedTuple):
    """One model that a selection found, and its files where the Hub listed them."""

    planned: Planned
    siblings: object = None  # as the list API has them, not looked at yet; None: not known


class StoreWriter(Store):
    """A store that a sweep writes."""

    _connect = staticmethod(open_store)

    def begin(self, night: str, selection: str, versions: Versions) -> Night:
        """Start a night, or go on with it; one that has finished is selected anew.

        Raises UsageError where it was started, and not finished, for another selection.
        """
        with self._writing() as database:
            known = self.night(night)
            if known and not known.finished and known.selection != selection:
                detail = f"the night {quoted(night)} is under way for {known.selection}"
                ways = "finish it with the same selection, or name this one (--night)"
                raise UsageError(f"{detail}, and not for {selection}: {ways}")
            if known is None or known.finished:
                database.execute(
                    "INSERT OR REPLACE INTO nights VALUES (?, ?, NULL, ?, ?, ?, NULL)",
                    (night, selection, versions.auditor, versions.catalogue, now()),
                )
            database.execute(
                "UPDATE nights SET auditor = ?, catalogue = ? WHERE night = ?",
                (versions.auditor, versions.catalogue, night),
            )
            self._forget_plans()
            return self.known(night)

    def known(self, night: str) -> Night:
        """The night; there is one."""
        known = self.night(night)
        if known is None:
            raise KeyError(night)
        return known

    def _forget_plans(self) -> None:
        """Delete the plans that no night has, nor will have: of selections that were stopped."""
        database = self._database
        live = {
            *database.execute("SELECT plan FROM nights WHERE plan IS NOT NULL"),
            *database.execute(
                "SELECT plans.plan FROM plans JOIN nights USING (night) WHERE nights.plan IS NULL"
            ),
        }
        plan = (0,)
        while plan := database.execute(
            "SELECT min(plan) FROM planned WHERE plan > ? HAVING min(plan) IS NOT NULL", plan
        ).fetchone():
            if plan not in live:
                database.execute("DELETE FROM planned WHERE plan = ?", plan)
        marks = ", ".join("?" for _ in live)
        gone = f"DELETE FROM plans WHERE plan NOT IN ({marks})"  # noqa: S608 - marks alone
        database.execute(gone, [number for (number,) in live])

    # --- selection ----------------------------------------------------------------------------

    def new_plan(self, night: str) -> int:
        """The number of a plan to fill; no reader sees it before `freeze`."""
        with self._writing() as database:
            plan = database.execute("INSERT INTO plans (night) VALUES (?)", (night,)).lastrowid
            return int(plan or 0)

    def add(self, night: Night, plan: int, found: Iterable[FoundModel]) -> None:
        """Add a page of models to a plan; of a model that comes twice the first stands."""
        with self._writing() as database:
            page = list(found)
            database.executemany(
                "INSERT OR IGNORE INTO planned VALUES (?, ?, ?, ?)",
                ((plan, *one.planned) for one in page),
            )
            for one in page:
                if one.siblings is not None and self._lacks(one.planned, night):
                    self._list(one.planned, one.siblings)

    def refuse(
        self, night: Night, plan: int, planned: Planned, recorded: Recorded, *, passing: bool
    ) -> None:
        """Add a model of which the Hub told nothing, and why."""
        self.add(night, plan, [FoundModel(planned)])
        self.fail(night, planned.model, "", recorded, passing=passing)

    def _lacks(self, planned: Planned, night: Night) -> bool:
        """Whether the files of a model will have to be fetched."""
        model, commit, _ = planned
        known = self._database.execute(
            "SELECT 1 FROM outcomes WHERE (model, commit_sha, auditor, catalogue) = (?, ?, ?, ?)"
            " UNION ALL SELECT 1 FROM snapshots WHERE (model, commit_sha) = (?, ?)",
            (model, commit, night.auditor, night.catalogue, model, commit),
        )
        return known.fetchone() is None

    def _list(self, planned: Planned, siblings: object) -> None:
        content = compress_text(json.dumps(siblings, separators=(",", ":")).encode())
        self._database.execute(
            "INSERT OR IGNORE INTO listings VALUES (?, ?, ?)", (*planned[:2], content)
        )

    def freeze(self, night: str, plan: int) -> int:
        """Make a plan the night's; the plan that is, where another sweep was first."""
        with self._writing() as database:
            database.execute(
                "UPDATE nights SET plan = ? WHERE night = ? AND plan IS NULL", (plan, night)
            )
            frozen = self.known(night).plan
            self._forget_plans()
            return int(frozen or 0)

    def unresolved(self, night: Night) -> tuple[str, ...]:
        """The requested ids whose commit the Hub did not give, for a reason that may pass."""
        rows = self._database.execute(
            "SELECT requested FROM planned JOIN failures f"
            " ON f.night = ? AND f.model = planned.model AND f.passing = 1"
            " WHERE plan = ? AND planned.commit_sha = '' ORDER BY planned.model",
            (night.night, night.plan),
        )
        return tuple(requested for (requested,) in rows)

    def resolve(self, night: Night, plan: int, found: FoundModel) -> None:
        """Put a model, now that the Hub has told it, where its request stood alone."""
        requested = found.planned.requested
        with self._writing() as database:
            database.execute(
                "DELETE FROM planned WHERE plan = ? AND model = ? AND commit_sha = ''",
                (plan, requested),
            )
            self._forgive(night.night, requested)
        self.add(night, plan, [found])

    # --- audits -------------------------------------------------------------------------------

    def waiting(self, night: Night, *, first: str = "") -> Iterator[Waiting]:
        """The planned models without an outcome of the night's versions, each at most once.

        From the id `first` on and round to the beginning. Asked in batches: what another sweep
        finds out meanwhile is left out.
        """
        for after, last in ((first, None), ("", first)):
            yield from self._between(night, after, last)

    def _between(self, night: Night, after: str, last: str | None) -> Iterator[Waiting]:
        while True:
            given = {**asdict(night), "after": after, "last": last}
            rows = self._database.execute(_WAITING, given).fetchall()
            if not rows:
                return
            yield from (Waiting(*row) for row in rows)
            after = rows[-1][0]

    def left(self, night: Night) -> int:
        """How many are waiting."""
        return int(self._database.execute(_LEFT, asdict(night)).fetchone()[0])

    def somewhere(self, night: Night) -> str:
        """The id of any planned model: where a second sweep starts, so as not to follow a first."""
        count = self.count(night)
        offset = random.randrange(count) if count else 0  # noqa: S311 - no secret
        query = "SELECT model FROM planned WHERE plan = ? ORDER BY model LIMIT 1 OFFSET ?"
        row = self._database.execute(query, (night.plan, offset)).fetchone()
        return "" if row is None else str(row[0])

    def together(self) -> AbstractContextManager[object]:
        """What is written within is one transaction."""
        return self._writing()

    def record(
        self,
        night: Night,
        model: str,
        commit: str,
        recorded: Recorded,
        *,
        snapshot: Kept | None = None,
    ) -> None:
        """Write an outcome that lasts, with the snapshot it was made of if it was fetched."""
        key = (model, commit)
        with self._writing() as database:
            database.execute(
                "INSERT OR IGNORE INTO outcomes (model, commit_sha, auditor, catalogue,"  # noqa: S608 - our own columns
                f" {_WRITTEN}) VALUES (?, ?, ?, ?, {_MARKS})",
                (*key, night.auditor, night.catalogue, *self._written(recorded)),
            )
            if snapshot is not None:
                shared = self._share(snapshot.shared)
                database.execute(
                    "INSERT OR IGNORE INTO snapshots VALUES (?, ?, ?, ?)",
                    (*key, snapshot.content, shared),
                )
            database.execute("DELETE FROM listings WHERE model = ? AND commit_sha = ?", key)
            self._forgive(night.night, model)

    def _written(self, recorded: Recorded) -> tuple[object, ...]:
        """The columns of an outcome; within a transaction."""
        kept = recorded.kept
        summary = map(_storable, recorded.summary)
        return *summary, now(), kept.content, self._share(kept.shared)

    def _share(self, shared: Shared | None) -> bytes | None:
        """Keep what rows have in common, unless it is there; its digest. Within a transaction."""
        if shared is None:
            return None
        self._database.execute("INSERT OR IGNORE INTO contents VALUES (?, ?)", shared)
        return shared.digest

    def _forgive(self, night: str, model: str) -> None:
        self._database.execute("DELETE FROM failures WHERE night = ? AND model = ?", (night, model))

    def fail(
        self,
        night: Night,
        model: str,
        commit: str,
        recorded: Recorded,
        *,
        passing: bool,
    ) -> None:
        """Write why one night could not see a model, unless another sweep just has."""
        with self._writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO failures (night, model, commit_sha, passing,"  # noqa: S608 - our own columns
                f" {_WRITTEN}) SELECT ?, ?, ?, ?, {_MARKS}"
                " WHERE NOT EXISTS (SELECT 1 FROM outcomes WHERE model = ? AND commit_sha = ?"
                " AND auditor = ? AND catalogue = ?)",
                (
                    *(night.night, model, commit, passing),
                    *self._written(recorded),
                    *(model, commit, night.auditor, night.catalogue),
                ),
            )

    def finish(self, night: Night) -> None:
        """End a night: what is left of its listings is of no more use."""
        with self._writing() as database:
            database.execute("UPDATE nights SET finished = ? WHERE night = ?", (now(), night.night))
            database.execute(
                "DELETE FROM listings WHERE NOT EXISTS (SELECT 1 FROM planned"
                " WHERE plan = ? AND planned.model = listings.model"
                " AND planned.commit_sha = listings.commit_sha)",
                (night.plan,),
            )

    # --- nights that are dropped ------------------------------------------------------------------

    def prune(self, night: str, keep: int) -> int:
        """Keep this night and the last finished ones, `keep` in all; how many were dropped.

        The order is that of names. A night that is not finished is neither dropped nor counted,
        and keeps all that it refers to. One transaction.
        """
        with self._writing() as database:
            others = [one.night for one in self.nights() if one.finished and one.night != night]
            dropped = others[: max(0, len(others) - (keep - 1))]
            if not dropped:
                return 0
            names = [(name,) for name in dropped]
            database.executemany("DELETE FROM nights WHERE night = ?", names)
            failed = database.executemany("DELETE FROM failures WHERE night = ?", names)
            self._forget_plans()
            gone = [failed, *(database.execute(statement) for statement in _UNPLANNED)]
            if any(rows.rowcount for rows in gone):
                database.execute(_UNSHARED)
            return len(dropped)


def _storable(value: object) -> object:
    """A count of a hostile config may have more digits; its JSON has all of them."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        return _LARGEST if value > 0 else -_LARGEST
    return value


_IS_OPEN = """
p.plan = :plan AND p.commit_sha != '' AND NOT EXISTS (
    SELECT 1 FROM outcomes o WHERE o.model = p.model AND o.commit_sha = p.commit_sha
        AND o.auditor = :auditor AND o.catalogue = :catalogue
)
"""
_LEFT = f"SELECT count(*) FROM planned p WHERE {_IS_OPEN}"  # noqa: S608 - our own
_WAITING = f"""
SELECT p.model, p.commit_sha, s.content, l.content, c.content
FROM planned p
LEFT JOIN snapshots s ON s.model = p.model AND s.commit_sha = p.commit_sha
LEFT JOIN contents c ON c.digest = s.shared
LEFT JOIN listings l ON l.model = p.model AND l.commit_sha = p.commit_sha
WHERE {_IS_OPEN} AND p.model > :after AND (:last IS NULL OR p.model <= :last)
ORDER BY p.model LIMIT {_BATCH}
"""  # noqa: S608 - a number of our own

# What goes with a night is looked for in the whole store, and not in the plan of that night alone:
# a night that was selected anew, or that a new version went on with, has left rows behind that no
# night refers to. Each key is looked up in the newest plan first, which names most of them: 2 s in
# a store of 500,000 fine-tunes, 3.6 s in one of 300,000 models that are like no other.

# What is left to refer to a row: plans that are frozen, and those that a selection is filling.
_KEPT = """
WITH kept (plan, auditor, catalogue) AS MATERIALIZED (
    SELECT plans.plan, nights.auditor, nights.catalogue FROM plans JOIN nights USING (night)
    ORDER BY plans.plan DESC
)
"""
_PLANNED = """
NOT EXISTS (
    SELECT 1 FROM kept CROSS JOIN planned p
    ON p.plan = kept.plan AND p.model = o.model AND p.commit_sha = o.commit_sha
"""
_OF_ITS_VERSIONS = "AND kept.auditor = o.auditor AND kept.catalogue = o.catalogue"

# Rows are found in the index of their key, so that what stays is not read.
_UNPLANNED = tuple(
    f"DELETE FROM {table} WHERE rowid IN ("  # noqa: S608 - our own tables
    f"{_KEPT} SELECT o.rowid FROM {table} o WHERE {_PLANNED} {versions}))"
    for table, versions in (("listings", ""), ("snapshots", ""), ("outcomes", _OF_ITS_VERSIONS))
)
_UNSHARED = """
DELETE FROM contents WHERE rowid IN (SELECT rowid FROM contents WHERE digest NOT IN (
    SELECT shared FROM snapshots WHERE shared IS NOT NULL
    UNION ALL SELECT shared FROM outcomes WHERE shared IS NOT NULL
    UNION ALL SELECT shared FROM failures WHERE shared IS NOT NULL
))
"""

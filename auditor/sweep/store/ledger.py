"""The writing side of a store: nights, plans and outcomes, each step one transaction."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from auditor.errors import UsageError
from auditor.messages import quoted
from auditor.sweep.policy import PASSING
from auditor.sweep.store.opening import execute_patiently, open_store
from auditor.sweep.store.packing import Kept, Shared, compress_text
from auditor.sweep.store.reading import Night, Recorded, SelectedModel, Store, Versions, now

_BATCH = 64  # models a query; each may bring a snapshot of some kB
_LARGEST = (1 << 63) - 1  # number that SQLite stores


class Waiting(NamedTuple):
    """A planned model without an outcome, and what there is to make one of."""

    model: str
    commit_sha: str
    snapshot: bytes | None  # packed
    listing: bytes | None  # packed
    shared: bytes | None = None  # packed: the rest of the snapshot; None: that is all of it


class StoreWriter(Store):
    """A store that a sweep writes."""

    _connect = staticmethod(open_store)

    @contextmanager
    def together(self) -> Iterator[sqlite3.Connection]:
        """What is written within is one transaction, or a part of the one that is under way.

        Begun as a writer: a reader that turns writer may find itself late.
        """
        if self._database.in_transaction:
            yield self._database
            return
        execute_patiently(self._database, "BEGIN IMMEDIATE")
        with self._database:
            yield self._database

    def begin(self, night: str, selection: str, versions: Versions) -> Night:
        """Start a night, or go on with it; one that has finished is selected anew.

        Raises UsageError where it was started, and not finished, for another selection.
        """
        with self.together() as database:
            plan, started = None, now()
            known = self.night(night)
            if known and not known.finished:
                if known.selection != selection:
                    detail = f"the night {quoted(night)} is under way for {known.selection}"
                    ways = "finish it with the same selection, or name this one (--night)"
                    raise UsageError(f"{detail}, and not for {selection}: {ways}")
                plan, started = known.plan, known.started
            database.execute(_SEEN_SINCE, (night, *versions))
            begun = Night(night, selection, plan, *versions, started, None)
            database.execute("INSERT OR REPLACE INTO nights VALUES (?, ?, ?, ?, ?, ?, ?)", begun)
            self._forget_plans()
            return begun

    def _forget_plans(self) -> None:
        """Delete the plans that no night has, nor will have: of selections that were stopped."""
        gone = self._database.execute(
            "DELETE FROM plans WHERE NOT EXISTS (SELECT 1 FROM nights n WHERE n.plan = plans.plan"
            " OR n.night = plans.night AND n.plan IS NULL) RETURNING plan"
        ).fetchall()
        self._database.executemany("DELETE FROM planned WHERE plan = ?", gone)

    # --- selection ----------------------------------------------------------------------------

    def new_plan(self, night: str) -> int:
        """The number of a plan to fill; no reader sees it before `freeze`."""
        with self.together() as database:
            plan = database.execute("INSERT INTO plans (night) VALUES (?)", (night,)).lastrowid
            return int(plan or 0)

    def add(self, night: Night, plan: int, selected: Iterable[SelectedModel]) -> None:
        """Add models to a plan, unless that is forgotten; of one that comes twice the first stands.

        One that the Hub tells now takes the place of its request, of which it had told nothing.
        """
        with self.together() as database:
            for one in selected:
                if one.commit_sha:
                    self._forget_refusal(night, plan, one.requested)
                database.execute(
                    "INSERT OR IGNORE INTO planned SELECT plan, ?, ?, ? FROM plans WHERE plan = ?",
                    (one.model, one.commit_sha, one.requested, plan),
                )
                if one.refusal:
                    self.record(night, one.model, "", one.refusal)
                elif one.siblings is not None:
                    self._list(night, one)

    def _forget_refusal(self, night: Night, plan: int, requested: str) -> None:
        query = "DELETE FROM planned WHERE plan = ? AND model = ? AND commit_sha = ''"
        if self._database.execute(query, (plan, requested)).rowcount:
            self._forgive(night, requested)

    def _list(self, night: Night, one: SelectedModel) -> None:
        """Keep the names of a model's files, unless nothing of it will have to be fetched."""
        key = one.model, one.commit_sha
        if not (self.has_outcome(*key, night) or self.has_snapshot(*key)):
            text = json.dumps(one.siblings, separators=(",", ":")).encode()
            query = "INSERT OR IGNORE INTO listings VALUES (?, ?, ?)"
            self._database.execute(query, (*key, compress_text(text)))

    def freeze(self, night: str, plan: int) -> Night:
        """Make a plan the night's, unless another sweep was first; the night with its plan."""
        with self.together() as database:
            query = "UPDATE nights SET plan = ? WHERE night = ? AND plan IS NULL"
            database.execute(query, (plan, night))
            self._forget_plans()
            return next(one for one in self.nights() if one.night == night)

    def unresolved(self, night: Night) -> tuple[str, ...]:
        """The requested ids whose commit the Hub did not give, for a reason that may pass."""
        rows = self._database.execute(
            "SELECT requested FROM planned WHERE plan = ? AND commit_sha = '' AND model IN"
            " (SELECT model FROM failures WHERE night = ? AND passing = 1) ORDER BY model",
            (night.plan, night.night),
        )
        return tuple(requested for (requested,) in rows)

    # --- audits -------------------------------------------------------------------------------

    def waiting(self, night: Night, *, first: str = "") -> Iterator[Waiting]:
        """The planned models without an outcome of the night's versions, each at most once.

        From the id `first` on and round to the beginning. Asked in batches: what another sweep
        finds out meanwhile is left out.
        """
        for after, last in ((first, None), ("", first)):
            given = {**night._asdict(), "after": after, "last": last}
            while rows := self._database.execute(_WAITING, given).fetchall():
                yield from (Waiting(*row) for row in rows)
                given["after"] = rows[-1][0]

    def left(self, night: Night) -> int:
        """How many are waiting."""
        return int(self._database.execute(_LEFT, night._asdict()).fetchone()[0])

    def somewhere(self, night: Night) -> str:
        """The id of any planned model: where a second sweep starts, so as not to follow a first."""
        query = "SELECT model FROM planned WHERE plan = ? ORDER BY random() LIMIT 1"
        row = self._database.execute(query, (night.plan,)).fetchone()
        return str(row[0]) if row else ""

    def record(
        self,
        night: Night,
        model: str,
        commit: str,
        recorded: Recorded,
        snapshot: Kept | None = None,
    ) -> None:
        """Write what became of a model, with the snapshot it was made of if it was fetched.

        Why one night could not see a model is a failure of that night, unless another sweep has
        just seen it. All else lasts.
        """
        key = (model, commit)
        passing = recorded.summary.reason in PASSING
        with self.together() as database:
            if passing or not commit:
                if not self.has_outcome(*key, night):
                    self._insert("failures", (night.night, *key, passing), recorded)
                return
            self._insert("outcomes", (*key, night.auditor, night.catalogue), recorded)
            if snapshot is not None:
                row = (*key, snapshot.content, self._share(snapshot.shared))
                database.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", row)
            database.execute("DELETE FROM listings WHERE model = ? AND commit_sha = ?", key)
            self._forgive(night, model)

    def _forgive(self, night: Night, model: str) -> None:
        query = "DELETE FROM failures WHERE night = ? AND model = ?"
        self._database.execute(query, (night.night, model))

    def _insert(self, table: str, key: tuple[object, ...], recorded: Recorded) -> None:
        """A row of outcomes, where the first stands, or of failures, where the last does."""
        summary = map(_storable, recorded.summary)
        content, shared = recorded.kept
        row = (*key, *summary, now(), content, self._share(shared))
        what = "IGNORE" if table == "outcomes" else "REPLACE"
        marks = ", ".join("?" for _ in row)
        self._database.execute(f"INSERT OR {what} INTO {table} VALUES ({marks})", row)  # noqa: S608 - our own

    def _share(self, shared: Shared | None) -> bytes | None:
        """Keep what rows have in common, unless it is there; its digest. Within a transaction."""
        if shared is None:
            return None
        self._database.execute("INSERT OR IGNORE INTO contents VALUES (?, ?)", shared)
        return shared.digest

    def finish(self, night: Night) -> None:
        """End a night: what is left of its listings is of no more use."""
        with self.together() as database:
            database.execute("UPDATE nights SET finished = ? WHERE night = ?", (now(), night.night))
            query = (
                "DELETE FROM listings WHERE NOT EXISTS (SELECT 1 FROM planned p WHERE p.plan = ?"
                " AND p.model = listings.model AND p.commit_sha = listings.commit_sha)"
            )
            database.execute(query, (night.plan,))

    # --- nights that are dropped ------------------------------------------------------------------

    def prune(self, night: str, keep: int) -> int:
        """Keep this night and the last finished ones, `keep` in all; how many were dropped.

        The order is that of names. A night that is not finished is neither dropped nor counted,
        and keeps all that it refers to. One transaction.
        """
        with self.together() as database:
            others = [one.night for one in self.nights() if one.finished and one.night != night]
            dropped = others[: max(0, len(others) - (keep - 1))]
            if not dropped:
                return 0
            for table in ("nights", "failures"):
                query = f"DELETE FROM {table} WHERE night = ?"  # noqa: S608 - our own tables
                database.executemany(query, ((name,) for name in dropped))
            self._forget_plans()
            for table in ("listings", "snapshots", "outcomes"):
                versions = _OF_ITS_VERSIONS if table == "outcomes" else "TRUE"
                database.execute(_UNPLANNED.format(table=table, versions=versions))
            database.execute(_UNSHARED)
            return len(dropped)


def _storable(value: object) -> object:
    """A count of a hostile config may have more digits; its JSON has all of them."""
    return max(-_LARGEST, min(value, _LARGEST)) if isinstance(value, int) else value


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

# What a night could not see, and another one has seen since at the same commit.
_SEEN_SINCE = """
DELETE FROM failures AS f WHERE night = ? AND EXISTS (
    SELECT 1 FROM outcomes o WHERE o.model = f.model AND o.commit_sha = f.commit_sha
        AND (o.auditor, o.catalogue) = (?, ?)
)
"""

# What goes with a night is looked for in the whole store, and not in the plan of that night alone:
# a night that was selected anew, or that a new version went on with, has left rows behind that no
# night refers to. Plans that are frozen refer to a row, and those that a selection is filling. Each
# key is looked up in the newest plan first, which names most of them, and rows are found in the
# index of their key, so that what stays is not read: 2 s in a store of 500,000 fine-tunes, 3.6 s
# in one of 300,000 models that are like no other.
_UNPLANNED = """
WITH kept (plan, auditor, catalogue) AS MATERIALIZED (
    SELECT plans.plan, nights.auditor, nights.catalogue FROM plans JOIN nights USING (night)
    ORDER BY plans.plan DESC
)
DELETE FROM {table} WHERE rowid IN (
    SELECT o.rowid FROM {table} o WHERE NOT EXISTS (
        SELECT 1 FROM kept CROSS JOIN planned p
        ON p.plan = kept.plan AND p.model = o.model AND p.commit_sha = o.commit_sha
        WHERE {versions}
    )
)
"""
_OF_ITS_VERSIONS = "kept.auditor = o.auditor AND kept.catalogue = o.catalogue"
_UNSHARED = """
DELETE FROM contents WHERE rowid IN (SELECT rowid FROM contents WHERE digest NOT IN (
    SELECT shared FROM snapshots WHERE shared IS NOT NULL
    UNION ALL SELECT shared FROM outcomes WHERE shared IS NOT NULL
    UNION ALL SELECT shared FROM failures WHERE shared IS NOT NULL
))
"""

"""The writing side of a store: nights, plans and outcomes, each step one transaction."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from auditor.errors import UsageError
from auditor.messages import quoted
from auditor.sweep.settings import PASSING
from auditor.sweep.store.opening import execute_patiently, open_store
from auditor.sweep.store.reading import Night, Recorded, SelectedModel, Store, Versions, now
from auditor.sweep.store.schema import Shared, StoredObject, compress_text

_BATCH = 64  # models per query; each may have a snapshot of some kB
_LARGEST = (1 << 63) - 1  # largest integer of SQLite
_MOST_EXAMPLES = 3  # ids of lost models in a message


class Waiting(NamedTuple):
    """A planned model without an outcome, with its listing and snapshot if they are stored."""

    model: str
    commit_sha: str
    snapshot: bytes | None  # packed
    listing: bytes | None  # packed
    shared: bytes | None = None  # packed: the rest of the snapshot; None: `snapshot` is complete


class Losses(NamedTuple):
    """The models of a selection that a later plan lacks, and those that it has in addition."""

    models: int  # of the earlier plan
    lost: int
    now: int  # models of the later plan
    new: int  # those that the earlier plan lacks
    examples: tuple[str, ...]  # the first ids that are lost


class StoreWriter(Store):
    """A store opened for writing, by a sweep."""

    _connect = staticmethod(open_store)

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__(database)
        self._replacing: dict[str, Night] = {}  # rows of nights that will replace finished ones

    @contextmanager
    def together(self) -> Iterator[sqlite3.Connection]:
        """Run the body in one transaction, or as a part of the transaction that is open.

        The transaction takes the write lock at once: SQLite refuses to turn a reader into a writer
        if another process has written meanwhile.
        """
        if self._database.in_transaction:
            yield self._database
            return
        execute_patiently(self._database, "BEGIN IMMEDIATE")
        with self._database:
            yield self._database

    def begin(
        self, night: str, selection: str, versions: Versions, *, force: bool = False
    ) -> Night:
        """Start or resume a night; if it is finished, its models are selected again.

        A finished night stays as it is until `freeze`. Raise UsageError if the night was started
        for another selection, unless it is finished and `force` is set.
        """
        with self.together():
            existing = self.night(night)
            if existing and existing.selection != selection and not (existing.finished and force):
                state, ways = "under way", "finish it with that selection"
                if existing.finished:
                    state, ways = "finished", "repeat with --force to replace it"
                detail = f"the night {quoted(night)} is {state} for {existing.selection}"
                ways = f"{ways}, or name this one (--night)"
                raise UsageError(f"{detail}, not for {selection}; {ways}")
            row = Night(night, selection, None, *versions, now(), None)
            if existing and existing.finished:
                self._replacing[night] = row
                return row
            if existing:
                row = row._replace(plan=existing.plan, started=existing.started)
            self._write(row)
            return row

    def _write(self, night: Night) -> None:
        self._database.execute(_SEEN_SINCE, (night.night, night.auditor, night.catalogue))
        query = "INSERT OR REPLACE INTO nights VALUES (?, ?, ?, ?, ?, ?, ?)"
        self._database.execute(query, night)
        self._delete_stale_plans()

    def withdraw(self, night: str) -> None:
        """Delete a night that has no plan, because its selection was refused."""
        with self.together() as database:
            query = "DELETE FROM nights WHERE night = ? AND plan IS NULL"
            if database.execute(query, (night,)).rowcount:
                database.execute("DELETE FROM failures WHERE night = ?", (night,))
                self._delete_stale_plans()

    def _delete_stale_plans(self) -> None:
        """Delete plans that no night uses, except a plan that an unfinished selection may fill."""
        stale_plans = self._database.execute(
            "DELETE FROM plans WHERE NOT EXISTS (SELECT 1 FROM nights n WHERE n.plan = plans.plan"
            " OR n.night = plans.night AND coalesce(n.finished > '' AND plans.plan > n.plan,"
            " n.plan IS NULL)) RETURNING plan"
        ).fetchall()
        self._database.executemany("DELETE FROM planned WHERE plan = ?", stale_plans)

    # --- selection ----------------------------------------------------------------------------

    def new_plan(self, night: str) -> int:
        """Create an empty plan and return its number; readers see it only after `freeze`."""
        with self.together() as database:
            plan = database.execute("INSERT INTO plans (night) VALUES (?)", (night,)).lastrowid
            return int(plan or 0)

    def add(
        self, night: Night, plan: int, selected: Iterable[SelectedModel], *, selection: int = 0
    ) -> None:
        """Add models to a plan, unless the plan was deleted; the first of two duplicates is kept.

        `selection` is the place of their selection. If an earlier request for a model found no
        commit, its row is replaced by one with a commit.
        """
        with self.together() as database:
            for model in selected:
                place = selection
                if model.commit_sha:
                    place = self._delete_refusal(night, plan, model.requested, place)
                row = (model.model, model.commit_sha, model.requested, model.pushed, place)
                database.execute(
                    "INSERT OR IGNORE INTO planned SELECT plan, ?, ?, ?, ?, ? FROM plans"
                    " WHERE plan = ?",
                    (*row, plan),
                )
                if model.refusal:
                    self.record(night, model.model, "", model.refusal)
                elif model.siblings is not None:
                    self._store_listing(night, model)

    def _delete_refusal(self, night: Night, plan: int, requested: str, selection: int) -> int:
        """Delete the row of a model without a commit; return its selection, else `selection`."""
        key = (plan, requested)
        query = "DELETE FROM planned WHERE (plan, model) = (?, ?) AND commit_sha = ''"
        rows = self._database.execute(f"{query} RETURNING selection", key).fetchall()
        if rows:
            self._delete_failure(night, requested)
        return int(rows[0][0]) if rows else selection

    def _store_listing(self, night: Night, model: SelectedModel) -> None:
        """Store the list of a model's files, unless the model's outcome or snapshot is stored."""
        key = model.model, model.commit_sha
        if not (self.has_outcome(*key, night) or self.has_snapshot(*key)):
            text = json.dumps(model.siblings, separators=(",", ":")).encode()
            query = "INSERT OR IGNORE INTO listings VALUES (?, ?, ?)"
            self._database.execute(query, (*key, compress_text(text)))

    def losses(self, before: tuple[int, int], tonight: tuple[int, int]) -> Losses:
        """Compare a selection of an earlier plan with one of tonight's, each a (plan, place).

        A model is lost if no selection of tonight's plan has its id, or the id as requested.
        """
        keys = dict(zip(("last", "at", "plan", "place"), (*before, *tonight), strict=True))
        [models], [now, new] = (
            self._database.execute(query, keys).fetchone() for query in (_HAD, _NEW)
        )
        lost, examples = 0, list[str]()
        for lost, (model,) in enumerate(self._database.execute(_LOST, keys), 1):
            if lost <= _MOST_EXAMPLES:
                examples.append(model)
        return Losses(models, lost, now, new or 0, tuple(examples))

    def freeze(self, night: str, plan: int) -> Night:
        """Assign a plan to the night, unless another sweep was first; return the updated night."""
        with self.together() as database:
            existing, row = self.night(night), self._replacing.pop(night, None)
            if row and existing and existing.finished:
                self._write(row._replace(plan=plan))
            query = "UPDATE nights SET plan = ? WHERE night = ? AND plan IS NULL"
            database.execute(query, (plan, night))
            self._delete_stale_plans()
            if frozen := self.night(night):
                return frozen
        raise UsageError(f"another sweep withdrew the night {quoted(night)}; sweep it again")

    def unresolved(self, night: Night) -> tuple[str, ...]:
        """Return the requested ids that have no commit for a reason that may be temporary."""
        rows = self._database.execute(
            "SELECT requested FROM planned WHERE plan = ? AND commit_sha = '' AND model IN"
            " (SELECT model FROM failures WHERE night = ? AND passing = 1) ORDER BY model",
            (night.plan, night.night),
        )
        return tuple(requested for (requested,) in rows)

    # --- audits -------------------------------------------------------------------------------

    def waiting(self, night: Night) -> Iterator[Waiting]:
        """Yield planned models without an outcome of the night's versions, each at most once.

        The models are queried in batches, so those that another sweep audits meanwhile are skipped.
        """
        parameters = {**night._asdict(), "after": ""}
        while rows := self._database.execute(_WAITING, parameters).fetchall():
            yield from (Waiting(*row) for row in rows)
            parameters["after"] = rows[-1][0]

    def left(self, night: Night) -> int:
        """Return the number of the night's planned models without an outcome."""
        return int(self._database.execute(_LEFT, night._asdict()).fetchone()[0])

    def record(
        self,
        night: Night,
        model: str,
        commit: str,
        recorded: Recorded,
        snapshot: StoredObject | None = None,
    ) -> None:
        """Write the outcome of a model, and its snapshot if the audit fetched one.

        If the model has no commit, or the reason may be temporary, write a failure of the night
        instead, unless another sweep has just written an outcome.
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
            self._delete_failure(night, model)

    def record_authors(self, model: str, commit: str, authors: str) -> None:
        with self.together() as database:
            query = "INSERT OR IGNORE INTO commits VALUES (?, ?, ?)"
            database.execute(query, (model, commit, authors))

    def _delete_failure(self, night: Night, model: str) -> None:
        query = "DELETE FROM failures WHERE night = ? AND model = ?"
        self._database.execute(query, (night.night, model))

    def _insert(self, table: str, key: tuple[object, ...], recorded: Recorded) -> None:
        """Insert a row; if it exists, keep an existing outcome but replace an existing failure."""
        summary = map(_storable, recorded.summary)
        content, shared = recorded.stored_outcome
        row = (*key, *summary, content, self._share(shared))
        on_conflict = "IGNORE" if table == "outcomes" else "REPLACE"
        marks = ", ".join("?" for _ in row)
        query = f"INSERT OR {on_conflict} INTO {table} VALUES ({marks})"  # noqa: S608 - our own
        self._database.execute(query, row)

    def _share(self, shared: Shared | None) -> bytes | None:
        """Store the shared part of an object once for all rows, and return its digest.

        Return None if there is no shared part. Call it within a transaction.
        """
        if shared is None:
            return None
        self._database.execute("INSERT OR IGNORE INTO contents VALUES (?, ?)", shared)
        return shared.digest

    def finish(self, night: Night) -> None:
        """Mark a night as finished, and delete file listings of models outside its plan."""
        with self.together() as database:
            database.execute("UPDATE nights SET finished = ? WHERE night = ?", (now(), night.night))
            query = (
                "DELETE FROM listings WHERE NOT EXISTS (SELECT 1 FROM planned p WHERE p.plan = ?"
                " AND p.model = listings.model AND p.commit_sha = listings.commit_sha)"
            )
            database.execute(query, (night.plan,))

    # --- dropping old nights ----------------------------------------------------------------------

    def prune(self, night: str, keep: int) -> int:
        """Delete finished nights except this one and the last `keep - 1` others; return how many.

        Nights are ordered by name. An unfinished night is neither deleted nor counted, and all rows
        that it refers to stay. All changes are one transaction.
        """
        with self.together() as database:
            other_nights = [
                row.night for row in self.nights() if row.finished and row.night != night
            ]
            dropped = other_nights[: max(0, len(other_nights) - (keep - 1))]
            if not dropped:
                return 0
            for table in ("nights", "failures"):
                query = f"DELETE FROM {table} WHERE night = ?"  # noqa: S608 - our own tables
                database.executemany(query, ((name,) for name in dropped))
            self._delete_stale_plans()
            for table in ("listings", "snapshots", "outcomes", "commits"):
                versions = _OF_ITS_VERSIONS if table == "outcomes" else "TRUE"
                database.execute(_UNPLANNED.format(table=table, versions=versions))
            database.execute(_UNSHARED)
            return len(dropped)


def _storable(value: object) -> object:
    """Clamp an integer to SQLite's range, because a hostile config may imply larger counts.

    The JSON of the outcome has the exact count.
    """
    return max(-_LARGEST, min(value, _LARGEST)) if isinstance(value, int) else value


# The models of one selection in an earlier plan.
_EARLIER = "planned l WHERE l.plan = :last AND l.selection = :at"
_HAD = f"SELECT count(*) FROM {_EARLIER}"  # noqa: S608 - our own
_NEW = f"""
SELECT count(*), sum(NOT EXISTS (SELECT 1 FROM {_EARLIER} AND l.model = t.model))
FROM planned t WHERE t.plan = :plan AND t.selection = :place
"""  # noqa: S608 - our own
_LOST = f"""
SELECT l.model FROM {_EARLIER}
AND NOT EXISTS (SELECT 1 FROM planned t WHERE t.plan = :plan AND t.model = l.model)
AND l.requested NOT IN (SELECT t.requested FROM planned t WHERE t.plan = :plan) ORDER BY l.model
"""  # noqa: S608 - our own

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
WHERE {_IS_OPEN} AND p.model > :after
ORDER BY p.model LIMIT {_BATCH}
"""  # noqa: S608 - a number of our own

# Delete a night's failures of models that have an outcome at the same commit now.
_SEEN_SINCE = """
DELETE FROM failures AS f WHERE night = ? AND EXISTS (
    SELECT 1 FROM outcomes o WHERE o.model = f.model AND o.commit_sha = f.commit_sha
        AND (o.auditor, o.catalogue) = (?, ?)
)
"""

# Delete rows that no plan refers to, frozen or being filled. The whole store is searched, and not
# only the plans of dropped nights: a night that was selected anew, or resumed by a new version, has
# left rows that no night refers to. Each key is looked up in the newest plan first, which contains
# most keys, through the index, so the contents of rows that stay are not read: 2 s in a store of
# 500,000 fine-tunes, 3.6 s in a store of 300,000 models without shared headers.
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

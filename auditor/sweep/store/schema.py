"""The tables of a store as SQL, and the packed texts in their rows. Pure.

The docstring of the package explains the tables.
"""

import json
import zlib
from hashlib import sha256
from typing import Any, NamedTuple

APPLICATION = 0x48664175  # "HfAu": the application id in the header of a store's file
VERSION = 7


class StoredNight(NamedTuple):
    """The verdict and counts of an outcome, as columns: queries need not unpack its JSON."""

    verdict: str  # clean, findings, unaudited
    reason: str | None  # auditor.errors.Reason of an unaudited model
    errors: int  # number of findings of this severity
    warnings: int
    blind: int  # number of components that could not be audited
    residual: int | None
    tensors: int | None  # observed; None: nothing was read


SUMMARY = StoredNight._fields
_TYPES = {
    str: "TEXT NOT NULL",
    str | None: "TEXT",
    int: "INTEGER NOT NULL",
    int | None: "INTEGER",
}
_SUMMARY_SQL = f"""
    {", ".join(f"{name} {_TYPES[kind]}" for name, kind in StoredNight.__annotations__.items())},
    content     BLOB NOT NULL,    -- zlib: what `audit --format json` writes, or its own of it
    shared      BLOB,             -- contents.digest of the rest; NULL: `content` is all
"""

_FAILURE_OR_OUTCOME = ", ".join(
    f"coalesce(f.{name}, o.{name}) AS {name}" for name in (*SUMMARY, "content")
)

_RESULTS = f"""
CREATE VIEW results AS
SELECT nights.night, planned.model, planned.commit_sha, planned.requested,
    planned.last_modified, (
        SELECT c.authors FROM commits c
        WHERE c.model = planned.model AND c.commit_sha = planned.commit_sha
    ) AS commit_authors,
    nights.auditor, nights.catalogue, {_FAILURE_OR_OUTCOME},
    CASE WHEN coalesce(f.shared, o.shared) IS NOT NULL THEN coalesce(
        (SELECT content FROM contents WHERE digest = coalesce(f.shared, o.shared)),
        x'' -- which does not unpack: the store is damaged
    ) END AS shared_content
FROM nights
JOIN planned ON planned.plan = nights.plan
LEFT JOIN failures f ON f.night = nights.night AND f.model = planned.model
    AND f.commit_sha = planned.commit_sha
LEFT JOIN outcomes o ON f.model IS NULL AND o.model = planned.model
    AND o.commit_sha = planned.commit_sha
    AND o.auditor = nights.auditor AND o.catalogue = nights.catalogue;
"""  # noqa: S608 - our own columns

TABLES = f"""
CREATE TABLE nights (
    night       TEXT PRIMARY KEY, -- the date, or the name that was given
    selection   TEXT NOT NULL,    -- what was asked for, as JSON
    plan        INTEGER,          -- the plan that is frozen; NULL: selection goes on
    auditor     TEXT NOT NULL,    -- the versions that its outcomes are of
    catalogue   TEXT NOT NULL,
    started     TEXT NOT NULL,
    finished    TEXT              -- NULL: it goes on, or was stopped
) WITHOUT ROWID;

CREATE TABLE plans (
    plan        INTEGER PRIMARY KEY AUTOINCREMENT,
    night       TEXT NOT NULL
);

CREATE TABLE planned (
    plan        INTEGER NOT NULL,
    model       TEXT NOT NULL,    -- the id after renames; as requested where none was found
    commit_sha  TEXT NOT NULL,    -- 40 hex digits; '': the Hub did not tell, see failures
    requested   TEXT NOT NULL,    -- the id as it was asked for
    last_modified TEXT,           -- ISO 8601, UTC: of the commit, by the Hub; NULL: unknown
    selection   INTEGER NOT NULL, -- its place in nights.selection
    PRIMARY KEY (plan, model)
) WITHOUT ROWID;

CREATE TABLE listings (
    model       TEXT NOT NULL,
    commit_sha  TEXT NOT NULL,
    content     BLOB NOT NULL,    -- zlib: the `siblings` of the list API, as JSON
    PRIMARY KEY (model, commit_sha)
);

CREATE TABLE snapshots (
    model       TEXT NOT NULL,
    commit_sha  TEXT NOT NULL,
    content     BLOB NOT NULL,    -- zlib: what `audit snapshot` writes, or its own of it
    shared      BLOB,             -- contents.digest of the rest; NULL: `content` is all
    PRIMARY KEY (model, commit_sha)
);

CREATE TABLE outcomes (
    model       TEXT NOT NULL,
    commit_sha  TEXT NOT NULL,
    auditor     TEXT NOT NULL,
    catalogue   TEXT NOT NULL,
    {_SUMMARY_SQL}
    PRIMARY KEY (model, commit_sha, auditor, catalogue)
);

CREATE TABLE failures (
    night       TEXT NOT NULL,
    model       TEXT NOT NULL,
    commit_sha  TEXT NOT NULL,
    passing     INTEGER NOT NULL, -- 1: worth another attempt, even this night
    {_SUMMARY_SQL}
    PRIMARY KEY (night, model)
);

-- With a rowid: 380 contents of 19 usual types take 4,991 bytes each, and 5,411 without one.
CREATE TABLE contents (
    digest      BLOB PRIMARY KEY, -- SHA-256 of the text, unpacked, as it was first written
    content     BLOB NOT NULL     -- zlib: the part of a JSON object that several rows share
);

CREATE TABLE commits (
    model       TEXT NOT NULL,
    commit_sha  TEXT NOT NULL,
    authors     TEXT NOT NULL,    -- by the Hub's list of commits, a name or several: 'a; b'
    PRIMARY KEY (model, commit_sha)
);
{_RESULTS}"""

# --- packed texts ---------------------------------------------------------------------------------

# Outcomes of 19 model types (190, with a mean of 72 kB) are compressed to 3,176 bytes in 0.09 ms on
# average; to 3,439 bytes in 0.09 ms at level 1, to 2,619 bytes in 0.20 ms at level 6.
_LEVEL = 3


class Shared(NamedTuple):
    """The part of a JSON object that several rows share."""

    digest: bytes  # SHA-256 of the unpacked text
    content: bytes  # the packed text


class StoredObject(NamedTuple):
    """A JSON object as a row of the store contains it."""

    content: bytes  # packed: the row's own part, or the whole object
    shared: Shared | None = None  # the rest; None: `content` is the whole object


def compress_text(text: bytes) -> bytes:
    return zlib.compress(text, _LEVEL)


def decompress_text(content: bytes) -> bytes:
    return zlib.decompress(content)


def digest_of(text: bytes) -> bytes:
    return sha256(text).digest()


def merged_object(content: bytes, shared: bytes | None) -> dict[str, Any]:
    """Unpack a row's object: merge the row's own part into the shared part, unless that is NULL.

    The shared part may contain keys of the row's own part with empty values, which fix their order.
    """
    own: dict[str, Any] = json.loads(decompress_text(content))
    return own if shared is None else {**json.loads(decompress_text(shared)), **own}

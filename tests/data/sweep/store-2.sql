-- A store of version 2, as hf-audit made it in November 2026.
PRAGMA application_id = 1214660981;
PRAGMA user_version = 2;

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
    content     BLOB NOT NULL,    -- zlib: of a snapshot file, as `audit snapshot` writes it, what
                                  -- is the model's own; all of it where nothing is shared
    shared      BLOB,             -- contents.digest of the rest; NULL: nothing is shared
    PRIMARY KEY (model, commit_sha)
);

CREATE TABLE outcomes (
    model       TEXT NOT NULL,
    commit_sha  TEXT NOT NULL,
    auditor     TEXT NOT NULL,
    catalogue   TEXT NOT NULL,
    
    verdict     TEXT NOT NULL,    -- clean, findings, unaudited
    reason      TEXT,             -- of an unaudited one: auditor.errors.Reason
    target      TEXT,
    model_type  TEXT,
    errors      INTEGER NOT NULL, -- findings of that severity
    warnings    INTEGER NOT NULL,
    infos       INTEGER NOT NULL,
    blind       INTEGER NOT NULL DEFAULT 0, -- its components that could not be audited
    residual    INTEGER,
    tensors     INTEGER,          -- observed; NULL: nothing was read
    elements    INTEGER,
    parameters  INTEGER,
    expected    INTEGER,          -- parameters that the config implies; NULL: not known
    requests    INTEGER NOT NULL, -- what this audit cost the Hub; 0: from the stored snapshot
    bytes       INTEGER NOT NULL,
    seconds     REAL NOT NULL,
    recorded    TEXT NOT NULL,    -- ISO 8601, UTC
    content     BLOB NOT NULL,    -- zlib: of the JSON object of `audit --format json`, schema 1,
                                  -- what is the model's own; all of it where nothing is shared
    shared      BLOB,             -- contents.digest of the rest; NULL: nothing is shared

    PRIMARY KEY (model, commit_sha, auditor, catalogue)
);

CREATE TABLE failures (
    night       TEXT NOT NULL,
    model       TEXT NOT NULL,
    commit_sha  TEXT NOT NULL,
    passing     INTEGER NOT NULL, -- 1: worth another attempt, even this night
    
    verdict     TEXT NOT NULL,    -- clean, findings, unaudited
    reason      TEXT,             -- of an unaudited one: auditor.errors.Reason
    target      TEXT,
    model_type  TEXT,
    errors      INTEGER NOT NULL, -- findings of that severity
    warnings    INTEGER NOT NULL,
    infos       INTEGER NOT NULL,
    blind       INTEGER NOT NULL DEFAULT 0, -- its components that could not be audited
    residual    INTEGER,
    tensors     INTEGER,          -- observed; NULL: nothing was read
    elements    INTEGER,
    parameters  INTEGER,
    expected    INTEGER,          -- parameters that the config implies; NULL: not known
    requests    INTEGER NOT NULL, -- what this audit cost the Hub; 0: from the stored snapshot
    bytes       INTEGER NOT NULL,
    seconds     REAL NOT NULL,
    recorded    TEXT NOT NULL,    -- ISO 8601, UTC
    content     BLOB NOT NULL,    -- zlib: of the JSON object of `audit --format json`, schema 1,
                                  -- what is the model's own; all of it where nothing is shared
    shared      BLOB,             -- contents.digest of the rest; NULL: nothing is shared

    PRIMARY KEY (night, model)
);

CREATE TABLE contents (
    digest      BLOB PRIMARY KEY, -- SHA-256 of the text, unpacked
    content     BLOB NOT NULL     -- zlib: the part of a JSON object that several rows share
);

CREATE VIEW results AS
SELECT nights.night, planned.model, planned.commit_sha, planned.requested,
    nights.auditor, nights.catalogue,
    iif(f.model IS NULL, o.verdict, f.verdict) AS verdict, iif(f.model IS NULL, o.reason, f.reason) AS reason, iif(f.model IS NULL, o.target, f.target) AS target, iif(f.model IS NULL, o.model_type, f.model_type) AS model_type, iif(f.model IS NULL, o.errors, f.errors) AS errors, iif(f.model IS NULL, o.warnings, f.warnings) AS warnings, iif(f.model IS NULL, o.infos, f.infos) AS infos, iif(f.model IS NULL, o.blind, f.blind) AS blind, iif(f.model IS NULL, o.residual, f.residual) AS residual, iif(f.model IS NULL, o.tensors, f.tensors) AS tensors, iif(f.model IS NULL, o.elements, f.elements) AS elements, iif(f.model IS NULL, o.parameters, f.parameters) AS parameters, iif(f.model IS NULL, o.expected, f.expected) AS expected, iif(f.model IS NULL, o.requests, f.requests) AS requests, iif(f.model IS NULL, o.bytes, f.bytes) AS bytes, iif(f.model IS NULL, o.seconds, f.seconds) AS seconds,
    iif(f.model IS NULL, o.recorded, f.recorded) AS recorded,
    iif(f.model IS NULL, o.content, f.content) AS content,
    iif(iif(f.model IS NULL, o.shared, f.shared) IS NULL, NULL, coalesce(
        (SELECT contents.content FROM contents
            WHERE contents.digest = iif(f.model IS NULL, o.shared, f.shared)),
        x'' -- which does not unpack: the store is damaged
    )) AS shared_content
FROM nights
JOIN planned ON planned.plan = nights.plan
LEFT JOIN outcomes o ON o.model = planned.model AND o.commit_sha = planned.commit_sha
    AND o.auditor = nights.auditor AND o.catalogue = nights.catalogue
LEFT JOIN failures f ON f.night = nights.night AND f.model = planned.model
    AND f.commit_sha = planned.commit_sha;

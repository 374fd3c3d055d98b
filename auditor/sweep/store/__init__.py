"""The store of a sweep: one SQLite file; a stopped sweep resumes from it.

Its tables and view (schema.py has the SQL):

nights     one row per night: its selection, the versions of the auditor, its start and end.
planned    the (model, commit) pairs of a night, frozen before the first audit, with the commits'
           times if the Hub's list has them. A plan is written under its own number and assigned to
           the night in one step, so a selection that was stopped half-way, or ran twice at the
           same time, leaves no trace.
listings   the files of a planned model, until its headers are stored.
snapshots  config, index and headers of (model, commit), as `audit snapshot` writes them. A new
           version of the auditor starts from these and fetches nothing.
outcomes   one row for each (model, commit, auditor version, catalogue version): the JSON object of
           `audit MODEL --format json` (schema 1), and its verdict and counts as columns. An outcome
           is a function of its key, so every night whose plan contains the key shows it, whichever
           night wrote it.
contents   the parts that several snapshots or outcomes share, each stored once, by digest: the
           headers of a fine-tune are identical to those of its base. A row's `content` is its own
           part of the object, `shared` is the digest of the shared part, and
           `schema.merged_object` joins the two; if `shared` is NULL, `content` is the whole
           object. One transaction writes a row and its shared part, which stays as long as a row
           refers to it.
commits    the authors of (model, commit), if a night asked the Hub for them: see sweep/authors.py.
failures   models that one night could not audit: `unaudited` for a reason that may be temporary
           (passing = 1: network, rate limits), or a model without a commit (not-found). A failure
           belongs to its night, so a later success does not rewrite an earlier night.
results    the view that reports read: one row for each planned model of each night, with the
           night's failure, else its outcome, else NULLs (verdict NULL: not audited yet);
           `shared_content` is the shared part of the outcome.

A report in Python needs `with Store.open(path)`, `nights()`, `night(name)`, `results(night)` and
`Result.outcome`; `previous(night)` returns the night before. Results are yielded one at a time,
sorted by model id; there may be as many as there are models on the Hub.

Outcomes are written as they arrive, in WAL mode; outcomes that arrive together are written in one
transaction. kill -9 loses at most the audits that were under way. A writer waits for another one
for up to a minute; an outcome that two sweeps compute is written once. Nights are dropped only if a
sweep has a limit on the nights to keep (`StoreWriter.prune`). A power failure may lose the last few
outcomes (synchronous=NORMAL) but never damages the file.
"""

"""The store of a sweep: one SQLite file that loses nothing, doubles nothing, and goes on.

What it holds (schema.py has the SQL):

nights     one row a night: what was selected, by which versions, when it ended.
planned    the (model, commit) that a night is about, frozen before the first audit. A plan is
           written under a number of its own and becomes the night's in one step, so that a
           selection that was stopped half-way, or made twice at once, leaves no trace.
listings   the files of a planned model, until its headers are here.
snapshots  config, index and headers of (model, commit), as `audit snapshot` writes them. A new
           version of the auditor starts from these and fetches nothing.
outcomes   one row for each (model, commit, auditor version, catalogue version): the JSON object of
           `audit MODEL --format json` (schema 1); its verdict and counts stand beside it as
           columns. Of the same night or not: an outcome is a function of its key, so any night
           whose plan names the key shows it.
contents   what snapshots or outcomes have in common, once, by its digest: fine-tunes have the
           headers of their base byte for byte. A row's `content` has its own part of the object,
           `shared` names the part that others have too, and `packing.merged_object` joins them;
           where `shared` is NULL, `content` has the whole object. One transaction writes a row and
           what it shares, which stays as long as a row names it.
failures   what one night could not see: `unaudited` for a reason that may pass (passing = 1:
           network, rate limits), or of a model that has no commit (not-found). They belong to
           their night, so that a later success does not rewrite an earlier night.
results    a view, what reports read: one row for each planned model of each night, with the
           night's failure, else its outcome, else NULLs (verdict NULL: not audited yet), and in
           `shared_content` what the outcome shares.

From Python a report needs `with Store.open(path)`, `nights()`, `night(name)`, `results(night)` and
`Result.outcome`; results come in order of model ids, one at a time, and may be as many as there
are models on the Hub. The night before: `previous(night)`.

Outcomes are written as they arrive, those that arrive together in one transaction, in WAL mode:
kill -9 costs at most the audits that were under way. Writers wait for each other for a minute; what
two sweeps both find out is written once. Nights are dropped where a sweep is told how many to keep
(`StoreWriter.prune`), and never otherwise. A power failure may cost the last few outcomes
(synchronous=NORMAL) and never the file.
"""

"""The reports of a night, from the store alone: tables, changes, a page, SARIF.

They work on outcomes as they are stored, the JSON objects of formats.as_json, so that a night of
any age and of any version can be written again. Everything passes one model at a time.
"""

"""The reports of a night, made from the store alone: tables, changes, a page, SARIF.

They read stored outcomes, which are JSON objects of formats.as_json, so reports of any night and
any version can be written again. Models are processed one at a time.
"""

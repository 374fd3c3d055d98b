"""Check a checkpoint's numbers: all numbers of local files, a sample of files on the Hub.

`tensor_bytes` reads and compares the bytes of tensors; `number_formats` and `tally` are arithmetic
over bytes, which `reading` applies to all that can be read. `plan` chooses spans of files on the
Hub. `rules/` turns the results into findings, with the limits of `rules/limits.py`; `examination`
calls all of these modules. `base`, `same_bytes` and `distances` compare two models, `verifying` a
folder with a listing. Only an audit with --values imports numpy.
"""

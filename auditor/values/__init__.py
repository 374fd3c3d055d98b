"""Check a checkpoint's numbers: all numbers of local files, a sample of files on the Hub.

`number_formats` and `tally` are arithmetic over bytes; `local_numbers` reads local files in blocks;
`plan` chooses spans of files on the Hub; `rules/` turns the results into findings; `examination`
calls all of these modules. Only an audit with --values imports numpy.
"""

"""The checks of a checkpoint's numbers: all of them on this machine, a sample from the Hub.

There are four parts. `number_formats` and `tally` are arithmetic over bytes; `local_numbers` reads
files in blocks; `plan` chooses spans of files on the Hub; `rules/` turns the results into findings.
`examination` calls them. Only an audit with --values imports numpy.
"""

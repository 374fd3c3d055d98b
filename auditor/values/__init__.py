"""The checks of a checkpoint's numbers: all of them on this machine, a sample from the Hub.

There are four parts. `number_formats` and `tally` are arithmetic over bytes; `local_numbers` reads
files in blocks; `telling`, `plan` and `sampling` choose and read spans of files on the Hub;
`rules/` turns the results into findings. All of it is built on numpy, and an audit without --values
imports none of it.
"""

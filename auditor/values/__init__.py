"""What the numbers of a checkpoint say: read whole from this machine, or a sample from the Hub.

Four parts. `number_formats` and `tally` are arithmetic over bytes; `local_numbers` reads files in
blocks; `telling`, `plan` and `sampling` choose and read spans of those on the Hub; `rules/` makes
findings of what all of them found. numpy stands behind all of it and nothing else,
so that an audit that asks for no values imports none of this.
"""

"""What the numbers of a checkpoint say: read whole from this machine, or a sample from the Hub.

Three parts. `number_formats` and `tally` are arithmetic over bytes; `local_numbers` reads files in
blocks; `rules/` makes findings of what both found. numpy stands behind all of it and nothing else,
so that an audit that asks for no values imports none of this.
"""

"""The statement of an audit, for a reviewer who signs it and a user who verifies it later.

`statement` makes it, `signature` signs it and checks signatures, `verification` compares it with
the model.
"""

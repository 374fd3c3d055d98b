"""The causes, one module each: what it checks, what it undoes and how it explains it."""

"""The audit of a snapshot: one model, an adapter, or several models in one repository."""

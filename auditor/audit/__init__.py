"""A snapshot -> Report | Unaudited: one model, an adapter, or several models in one repository."""

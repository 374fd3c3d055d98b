"""Auditing the planned models of a sweep: threads of this process, or workers of a Dask cluster."""

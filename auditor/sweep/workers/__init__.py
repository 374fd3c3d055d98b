"""Workers that audit the models of a sweep: threads of this process, or a Dask cluster's."""

"""Who audits: processes here, or the workers of a cluster, each model within its bounds."""

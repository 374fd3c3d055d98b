"""Claims: a published count is confirmed, or refuted with the slips that explain it."""

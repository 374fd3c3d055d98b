"""Claims: confirm a published count, or refute it with the slips (counting errors) behind it."""

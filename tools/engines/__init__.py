"""What inference engines' own loaders take, recorded for auditor/data/engines."""

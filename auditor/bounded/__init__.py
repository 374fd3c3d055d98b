"""Bounded readers of untrusted text: JSON, regular expressions, zip directories and pickles."""

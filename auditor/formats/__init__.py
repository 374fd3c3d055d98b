"""Formats: pure functions of reports. Names come from strangers, and each format escapes them."""

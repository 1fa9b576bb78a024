"""Requests of `cordwood group` about groups of all types."""

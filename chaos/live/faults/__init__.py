"""Faults of a running cluster that can be undone, one small class for each kind."""

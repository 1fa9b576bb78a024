"""Harm that is done to a running cluster and undone again, one small class for each kind."""

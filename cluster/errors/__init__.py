"""Errors that all parts of a broker share; they belong to no wire."""

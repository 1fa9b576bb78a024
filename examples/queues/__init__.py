"""A worker of a queue over HTTP."""

"""Queues over HTTP: a broker's members of share groups, for clients that have only HTTP."""

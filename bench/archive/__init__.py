"""Benchmark of the archive: its cost for producers and other consumers, and the brokers without their object store."""

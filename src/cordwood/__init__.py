"""Cordwood: a replicated, partitioned, append-only log that speaks the Kafka wire protocol."""

__version__ = "0.2.0"

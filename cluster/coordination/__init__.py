"""Shared parts of the coordinators: internal topics, and a shard of state for each of their partitions."""

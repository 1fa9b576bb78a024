"""What the coordinators share: internal topics, and a shard of state for each of their partitions."""

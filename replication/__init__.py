"""Replication of a partition: leader and follower roles as pure decisions, with thin I/O around them."""

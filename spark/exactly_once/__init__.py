"""Exactly-once writes: transactions that tasks prepare and the driver commits, after a decision in a topic."""

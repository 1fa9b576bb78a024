"""The audit log: administrative acts and refusals as hash-chained JSON lines."""

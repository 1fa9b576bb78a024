"""A small blocking Kafka client that hands out whole batches: no other client does (docs/adr/0016)."""

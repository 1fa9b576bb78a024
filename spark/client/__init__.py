"""A small blocking Kafka client that returns whole record batches, which no other client does (docs/adr/0016)."""

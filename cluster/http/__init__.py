"""HTTP beside Kafka's protocol: whether a broker is well, what it holds, its metrics. Loaded only where it listens."""

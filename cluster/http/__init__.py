"""HTTP beside Kafka's protocol: an API for all that clients do, health, metrics. Loaded only where it listens."""

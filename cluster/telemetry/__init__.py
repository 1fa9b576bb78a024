"""Client telemetry (KIP-714): which metrics clients push to their brokers, and what they pushed."""

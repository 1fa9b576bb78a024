"""Client telemetry (KIP-714): subscriptions of client instances, and the metrics that they push."""

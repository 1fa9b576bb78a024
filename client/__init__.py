"""The client side of the Kafka protocol: one codec without I/O for all clients, and a blocking connection on it."""

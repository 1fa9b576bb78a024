"""Scaling of a broker's costs with partitions, connections, consumers, record size, log size and brokers."""

"""What grows with partitions, connections, consumers, records, logs and brokers, and what stays as it is."""

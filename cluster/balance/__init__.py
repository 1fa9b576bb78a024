"""Balance of replicas and leaders among brokers: the load of a cluster in, the moves that even it out. Pure."""

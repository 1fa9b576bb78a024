"""Consumer groups with the consumer protocol of KIP-848: the coordinator assigns the partitions."""

"""What one broker is: the Kafka wire, groups, metadata and the command line."""

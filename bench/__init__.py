"""What is it worth: the same lines as Kafka's, measured by a neutral client."""

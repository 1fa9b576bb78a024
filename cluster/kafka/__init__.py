"""The Kafka wire protocol: connections, codec, and one handler file per API."""

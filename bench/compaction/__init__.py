"""Compaction beside Apache Kafka: the same history into both, compacted by both, and the consumers' views compared."""

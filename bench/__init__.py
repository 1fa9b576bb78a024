"""Performance benchmarks of Cordwood and Apache Kafka under the same load, and budgets of what requests may cost."""

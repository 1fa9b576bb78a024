"""Example programs that use Cordwood through ordinary Kafka clients and Spark."""

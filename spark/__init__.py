"""The Spark connector: a PySpark data source and sink for Cordwood topics."""

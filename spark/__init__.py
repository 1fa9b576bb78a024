"""The log as a PySpark data source and sink: committed records in, records out."""

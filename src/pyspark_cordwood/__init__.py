"""Spark looks for data sources in modules named pyspark_*: with this one, format("cordwood") needs no registration."""

from cordwood.spark.source import DefaultSource

__all__ = ["DefaultSource"]

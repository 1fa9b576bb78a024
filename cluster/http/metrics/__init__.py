"""Metrics for Prometheus: a table of them (`table.py`), and a scrape that nobody else notices (`scrape.py`)."""

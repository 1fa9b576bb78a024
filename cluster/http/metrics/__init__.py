"""Prometheus metrics: the table of all metrics (`table.py`) and the scrape (`scrape.py`)."""

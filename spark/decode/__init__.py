"""Vectorized decoding of record batches to Arrow columns, with numpy instead of a Python loop over records."""

"""Whole batches to Arrow columns, with numpy: nothing is done for each record in Python that can be done for all."""

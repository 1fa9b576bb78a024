"""Record batches as Arrow columns: vectorized decoding with numpy instead of a Python loop over records."""

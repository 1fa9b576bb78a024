"""Budgets of the broker process: memory pools, and threads for decoding."""

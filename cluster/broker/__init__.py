"""The broker process: composition root, lifecycle, identity of its directories, and its part as controller."""

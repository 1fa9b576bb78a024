"""Checks of metadata proposals: in this broker's handlers, and for commands that other brokers send."""

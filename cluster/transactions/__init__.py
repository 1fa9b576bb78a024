"""Transactions: a pure state machine for each transactional id, and the shell that does its I/O."""

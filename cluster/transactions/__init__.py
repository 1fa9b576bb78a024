"""Transactions: a pure state machine for each transactional id, and the shell that stores it in `__transaction_state`."""

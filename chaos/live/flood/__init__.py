"""Flood of valid requests of the largest size on a running broker, beside clients whose waits are measured."""

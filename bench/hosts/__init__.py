"""Hosts with several brokers: the cost of each process, and the gain of a second one."""

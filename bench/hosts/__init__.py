"""Hosts with several brokers: what each more process costs, and what a second process gains."""

"""The flights demo: all flights from New York in 2013 through three brokers, one of which is killed half-way."""

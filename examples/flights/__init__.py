"""Every flight that left New York in 2013, through three brokers of which one is killed half-way."""

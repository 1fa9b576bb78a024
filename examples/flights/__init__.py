"""Every flight that left New York in 2013, through a broker that is killed half-way."""

"""A cluster that grows from three brokers to five and shrinks back to three, under load."""

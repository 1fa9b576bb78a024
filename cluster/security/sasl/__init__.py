"""SASL mechanisms (RFC 4422), server side and, for links between brokers, client side. Pure."""

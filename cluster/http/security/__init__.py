"""Security of HTTP: the identity and the rights of a request."""

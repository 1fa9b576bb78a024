"""Security of HTTP: who sends a request, and what it may do."""

"""The resources of the HTTP API, one module each: request and response types, and handlers."""

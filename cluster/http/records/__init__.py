"""Records over HTTP: produce one or many, consume as JSON lines, follow as server-sent events."""

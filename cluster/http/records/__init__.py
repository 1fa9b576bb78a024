"""Records over HTTP: produced by one request or a batch of them, read as lines, and followed as events."""

"""The archive under load: what it costs producers and other consumers, and how it goes on without its store."""

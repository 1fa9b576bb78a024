"""Log compaction: the last record of each key is kept, and older ones are removed (ADR 39)."""

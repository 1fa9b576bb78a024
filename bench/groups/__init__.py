"""Benchmark of group membership: many members of one group, and what the others notice of a change."""

"""Benchmark of group membership: many members of one group, and the effect of a change on the others."""

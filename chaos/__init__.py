"""Proof by breaking things: simulated disks, real kills and power cuts."""

"""Fault injection on real broker processes and real disks."""

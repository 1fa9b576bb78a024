"""Faults on real processes and real disks."""

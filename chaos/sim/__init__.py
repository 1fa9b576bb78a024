"""The simulated world: everything behind the seams, driven by a seed."""

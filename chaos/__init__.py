"""Chaos testing: cluster simulator, fault injection on real processes, mutation testing, history checkers."""

"""How the replicas of a partition agree: pure decisions, thin I/O."""

"""Share partitions at their leaders, and the share coordinator that keeps their state (KIP-932)."""

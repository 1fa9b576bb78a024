"""Archive: sealed segments of partitions in an object store, and readers of them that need no broker (KIP-405)."""

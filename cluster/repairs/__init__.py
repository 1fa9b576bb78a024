"""Detection and repair of damaged and unflushed replicas."""

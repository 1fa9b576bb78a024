"""The log of one partition on one disk: batches, segments, indexes, recovery. No event loop, network or clock."""

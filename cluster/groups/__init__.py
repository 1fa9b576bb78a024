"""Consumer groups: a pure state machine, and the shell that keeps it in `__consumer_offsets`."""

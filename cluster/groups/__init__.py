"""Consumer groups: a pure state machine, and the shell that stores it in `__consumer_offsets`."""

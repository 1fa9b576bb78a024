"""Groups of all types: a pure state machine for each type, and the shell that stores them in `__consumer_offsets`."""

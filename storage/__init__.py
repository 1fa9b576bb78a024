"""One partition's log on one disk: no async, no network, no clock of its own."""

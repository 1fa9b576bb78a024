"""The state of a cluster as operators see it, and the checks and texts that the command line and HTTP share."""

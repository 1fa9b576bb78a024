"""Client quotas: which limit holds for a client, and the windows in which its use is counted. Pure."""

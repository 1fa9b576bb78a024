"""Client quotas: which limit holds for a client, and token buckets that count its use. Pure."""

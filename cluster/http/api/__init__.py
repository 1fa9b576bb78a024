"""The resources of the HTTP API, one a file: the shapes they have, and what is asked of the cluster for them."""

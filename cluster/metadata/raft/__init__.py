"""A quorum of several: the metadata kept by Raft, on top of PySyncObj, with our own journal, transport and rules."""

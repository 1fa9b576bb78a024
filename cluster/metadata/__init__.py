"""The replicated metadata log: commands, the metadata image they build, the journal, and the Raft quorum."""

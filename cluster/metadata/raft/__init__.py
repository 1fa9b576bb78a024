"""The Raft metadata quorum: PySyncObj with Cordwood's own journal, transport and safety rules."""

"""Transactions beside the same work without them: throughput, consumers, and many open transactional ids."""

"""Membership of share groups (KIP-932)."""

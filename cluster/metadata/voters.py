"""Voters of the metadata quorum, as the metadata log names them (KIP-853)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter: the id of its metadata directory, which tells an empty disk from a known one, and its address."""

    directory_id: str
    host: str
    port: int

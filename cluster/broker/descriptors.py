"""Budget of file descriptors: open segments, client connections, and a reserve."""

from dataclasses import dataclass

RESERVE = 256
"""Descriptors for metadata, checkpoints, group commit, listeners, HTTP and other brokers; at most a quarter of all."""


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """Largest numbers of open segments over all logs, and of accepted client connections."""

    segments: int
    connections: int


def share_out(descriptors_max: int, segments_max: int, connections_max: int) -> DescriptorBudget:
    """Keep a reserve, and give connections at most half of the rest: requests need open segments."""
    rest = descriptors_max - min(RESERVE, descriptors_max // 4)
    connections = min(connections_max, rest // 2)
    return DescriptorBudget(min(segments_max, rest - connections), connections)

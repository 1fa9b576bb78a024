"""How the file descriptors that the process may have are shared out among segments, connections and all else."""

from dataclasses import dataclass

RESERVE = 256
"""For the metadata, checkpoints, files of a group commit, listeners, HTTP and other brokers; a quarter where few are
there at all."""


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """Segments of all logs that may be open, and connections of clients that may be accepted."""

    segments: int
    connections: int


def share_out(descriptors_max: int, segments_max: int, connections_max: int) -> DescriptorBudget:
    """Keep a reserve, and give connections no more than half of the rest: without segments nobody is served."""
    rest = descriptors_max - min(RESERVE, descriptors_max // 4)
    connections = min(connections_max, rest // 2)
    return DescriptorBudget(min(segments_max, rest - connections), connections)

"""Counts of rebalances, and the time of target assignments, of the groups that this broker coordinates."""

from collections import Counter
from dataclasses import dataclass, field

from cordwood.cluster.groups.any_group import GroupKind
from cordwood.replication.measures import SECONDS, Histogram


@dataclass(slots=True)
class GroupMeasures:
    """Measures since the broker has started."""

    rebalances: Counter[GroupKind] = field(default_factory=Counter)
    assignments_s: dict[GroupKind, Histogram] = field(
        default_factory=lambda: {kind: Histogram(SECONDS) for kind in GroupKind if kind is not GroupKind.CLASSIC}
    )
    """From the start of a target assignment to its end. Members of classic groups compute their own."""

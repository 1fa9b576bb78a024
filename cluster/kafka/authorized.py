"""Authorized operations as bit sets (KIP-430)."""

from cordwood.cluster.kafka.call import Call
from cordwood.cluster.kafka.rights import CLUSTER, DESCRIBE

NOT_ASKED = -(1 << 31)
"""Stands for a request without `include_..._authorized_operations`."""


def cluster_operations(call: Call, is_asked: bool) -> int:
    """Return the operations that the client may do on the cluster; none if it may not describe the cluster."""
    if not is_asked:
        return NOT_ASKED
    return call.operations(CLUSTER) if call.may(DESCRIBE, CLUSTER) else 0

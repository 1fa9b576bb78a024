"""Authorized operations as bit sets (KIP-430). There is no access control: every client may do everything."""

from cordwood.cluster.metadata.acls import AclOperation as Op

NOT_ASKED = -(1 << 31)
"""Stands for a request without `include_..._authorized_operations`."""


def _bits(*operations: Op) -> int:
    return sum(1 << operation for operation in operations)


_ON_BOTH = (Op.CREATE, Op.ALTER, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)
ON_TOPIC = _bits(*_ON_BOTH, Op.READ, Op.WRITE, Op.DELETE)
ON_CLUSTER = _bits(*_ON_BOTH, Op.CLUSTER_ACTION, Op.IDEMPOTENT_WRITE)

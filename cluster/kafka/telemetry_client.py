"""The values of a client that the `match` of a client metrics subscription is compared with (KIP-714)."""

from collections.abc import Mapping
from uuid import UUID

from cordwood.cluster.kafka.call import Call


def selectors_of(instance_id: UUID, call: Call) -> Mapping[str, str]:
    """Return the client's value of each selector."""
    name, version = call.software
    return {
        "client_id": call.client_id,
        "client_instance_id": str(instance_id),
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": call.client_host,
        "client_source_port": "",
    }

"""Kafka's tools for those who run a cluster: reassignments, feature levels, and voters of the metadata quorum."""

from collections.abc import Mapping
from typing import ClassVar

import java_admin
from kafka_tools_suite import KafkaTools, Scenario


class KafkaAdmin(KafkaTools):
    """The scenarios with one version of Kafka's tools; `words` select scenarios."""

    name = "kafka_admin"
    counts = (3,)
    scenarios: ClassVar[Mapping[str, Scenario]] = {
        "reassignment": java_admin.partitions_are_reassigned,
        "features": java_admin.feature_levels,
        "quorum": java_admin.voters_leave_and_return,
    }

"""Java's consumers of both group protocols, its share consumers, and Kafka's tools for groups."""

from collections.abc import Mapping
from typing import ClassVar

import java_groups
from kafka_tools_suite import KafkaTools, Scenario


class KafkaGroups(KafkaTools):
    """The scenarios with one version of Kafka's tools; `words` select scenarios."""

    name = "kafka_groups"
    scenarios: ClassVar[Mapping[str, Scenario]] = {
        "consumers": java_groups.consumers_share_the_partitions,
        "migration": java_groups.a_group_migrates_both_ways,
        "share_consumers": java_groups.share_consumers_share_the_records,
        "rejected_and_released": java_groups.rejected_and_released_records,
        "performance_tools": java_groups.performance_tools,
        "configs": java_groups.configs_of_groups,
    }

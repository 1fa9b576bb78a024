"""Mutants of near reads, hosts and client telemetry."""

from cordwood.chaos.mutants.mutant import Mutant, Scenario

ONE_HOST = "Two replicas of a partition are on one host, and its end takes both."
FLOOD = "Clients cost the broker more than they may."

MUTANTS = (
    Mutant(
        "dark-hosts-get-no-replica",
        "cluster/proposals/topics.py",
        "    rack_of = _racks([*alive, *_of_dark_racks(registered, alive, replication_factor)])\n",
        "    rack_of = _racks(alive)\n",
        "While hosts are down, no other host gets two replicas in place of one.",
        ONE_HOST,
    ),
    Mutant(
        "a-host-is-stopped-broker-by-broker",
        "cluster/operations/can_stop.py",
        "        left = (partition.isr & _alive(view)) - brokers\n",
        "        left = (partition.isr & _alive(view)) - {min(brokers, default=0)}\n",
        "Brokers that stop together are counted together.",
        "The check allows a stop after which partitions cannot be read or written.",
    ),
    Mutant(
        "leaders-always-propose-a-nearer-replica",
        "cluster/broker/peer_directory.py",
        "        if not self._is_rack_aware or partition.leading is None or me is None or me.rack == rack:\n",
        "        if partition.leading is None or me is None or me.rack == rack:\n",
        "replica.selector.class decides who serves readers.",
        "Followers serve reads although the operator turned that off.",
    ),
    Mutant(
        "a-reader-stays-with-a-failed-replica",
        "spark/client/fetch.py",
        "            cluster.forget(wanted.place)\n"
        "            if cluster.leave_near(wanted.place):\n                continue\n",
        "            cluster.forget(wanted.place)\n",
        "A reader goes back to the leader when its near replica fails.",
        "The task asks the failed replica until it gives up.",
    ),
    Mutant(
        "pushes-come-at-any-rate",
        "cluster/telemetry/client_instances.py",
        "        elif not is_terminating:\n            return ErrorCode.throttling_quota_exceeded\n",
        "",
        "A client pushes no more often than its interval.",
        FLOOD,
    ),
    Mutant(
        "pushed-series-have-no-limit",
        "cluster/telemetry/pushed_metrics.py",
        "                if self.series >= SERIES_MAX or not _is_wanted(name, prefixes):\n",
        "                if not _is_wanted(name, prefixes):\n",
        "The series of all clients are bounded.",
        FLOOD,
    ),
    Mutant(
        "pushes-unpack-to-any-size",
        "storage/decompression.py",
        "        if str(error) == _NO_ROOM:\n            raise OverflowError(bytes_max) from None\n"
        '        raise CorruptBatch(f"data',
        '        raise CorruptBatch(f"data',
        "A push that unpacks to more than the limit is refused as too large.",
        "The client sends the same push again, smaller by nothing.",
    ),
    Mutant(
        "an-old-subscription-is-pushed-for-ever",
        "cluster/telemetry/client_instances.py",
        "        if subscription_id != instance.wanted.subscription_id:\n",
        "        if False:\n",
        "A client whose subscription has changed is sent back for the new one.",
        "The operator's change of a subscription reaches no running client.",
    ),
    Mutant(
        "sessions-name-the-nearest-replica-once",
        "cluster/kafka/handlers/fetch.py",
        "            or row.preferred_replica >= 0\n",
        "",
        "Each response names the nearest replica.",
        "A consumer gets empty responses without end.",
        Scenario.BROKERS,
    ),
)

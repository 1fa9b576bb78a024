"""The image builder: applies metadata commands to an image. Pure: every broker computes the same image."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import assert_never
from uuid import UUID

from kio.schema.errors import ErrorCode

from cordwood.cluster.metadata import (
    access_changes,
    archives,
    cluster_changes,
    cut_changes,
    directory_changes,
    elections,
    voter_changes,
)
from cordwood.cluster.metadata.archive_commands import (
    BeginUpload,
    CommitUpload,
    ForgetArchived,
    GiveUpUploads,
    RemoveArchived,
)
from cordwood.cluster.metadata.client_quotas import AlterClientQuotas
from cordwood.cluster.metadata.commands import (
    NEVER_REGISTERED,
    AddVoter,
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    AlterScramCredentials,
    Assignment,
    AssignReplicasToDirs,
    BeginControlledShutdown,
    BrokerId,
    Command,
    ConfigChange,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    DropReplicas,
    Election,
    ElectLeaders,
    FenceBroker,
    FormatCluster,
    IsrChange,
    PutDelegationToken,
    ReassignPartition,
    RegisterBroker,
    RemoveDelegationTokens,
    RemoveVoter,
    ReportUnflushed,
    ResourceType,
    UnfenceBroker,
    UnregisterBroker,
    UpdateVoter,
)
from cordwood.cluster.metadata.cuts import CreateCut, DropCut
from cordwood.cluster.metadata.features import FIRST_LEVEL, METADATA_VERSION, Levels, UpdateFeatures
from cordwood.cluster.metadata.image import (
    EMPTY,
    MIN_ISR,
    BrokerImage,
    CommandRefused,
    Image,
    PartitionImage,
    TopicImage,
)
from cordwood.cluster.metadata.image_delta import Change, ImageDelta
from cordwood.cluster.metadata.proposers import check_level
from cordwood.storage.producers import FIRST_OF_ONE_BATCH
from cordwood.storage.steps import Steps, at_once


def apply(image: Image, command: Command, index: int) -> Image:
    """Return the image after one command. Raises CommandRefused if the command does not fit."""
    builder = ImageBuilder(image)
    builder.apply(command, index)
    return builder.image()


class ImageBuilder:
    """An image and the commands applied to it. Several commands share one copy, so that replay takes linear time."""

    def __init__(self, image: Image) -> None:
        self._delta = ImageDelta(image)
        self._index, self._recent = image.index, image.recent

    def apply(self, command: Command, index: int) -> None:
        """Apply one command. Raises only CommandRefused; then nothing but the index has changed.

        The index counts refused commands too. A command that breaks an invariant is refused with UNKNOWN_SERVER_ERROR
        and its cause. Every broker refuses the same commands. If the error were raised, no broker could apply the
        entries after it, now or after any restart.
        """
        at_once(self.in_steps(command, index))

    def in_steps(self, command: Command, index: int) -> Steps[None]:
        """Apply one command, as `apply`. The builder is used for nothing else until the last step has run."""
        self._index = index
        self._delta.mark()
        try:
            check_level(command, self._delta.rest)
            yield from self._change_by(command, index)
        except CommandRefused:
            self._delta.undo()
            raise
        except Exception as error:
            self._delta.undo()
            raise CommandRefused(
                ErrorCode.unknown_server_error, f"The command violates an invariant: {error!r}"
            ) from error

    def _change_by(self, command: Command, index: int) -> Steps[None]:  # noqa: C901 - one case a command
        match command:
            case FormatCluster():
                self._format(command)
            case RegisterBroker():
                yield from self._register_broker(command, index)
            case FenceBroker():
                yield from self._fence(self._broker(command))
            case UnfenceBroker():
                yield from self._unfence(self._broker(command))
            case BeginControlledShutdown():
                yield from self._begin_shutdown(self._broker(command))
            case UnregisterBroker():
                self._unregister(command)
            case CreateTopic():
                self._create_topic(command)
            case DeleteTopic():
                topic = self._delta.known_topic(command.topic_id)
                cut_changes.check_not_pinned(self._delta, topic)
                self._delta.remove_topic(topic)
                self._delta.rest = directory_changes.without_topic(self._delta.rest, topic)
            case CreatePartitions():
                self._create_partitions(command)
            case AlterPartitions():
                yield from self._alter_partitions(command)
            case ElectLeaders():
                yield from self._elect(command)
            case ReassignPartition():
                self._reassign(command)
            case DropReplicas():
                yield from self._drop_replicas(command)
            case ReportUnflushed():
                yield from self._report_unflushed(command)
            case AlterConfigs():
                yield from self._alter_configs(command)
            case AllocateProducerIds():
                self._allocate_producer_ids(command)
            case (
                CreateAcls() | DeleteAcls() | AlterScramCredentials() | PutDelegationToken() | RemoveDelegationTokens()
            ):
                self._delta.rest = access_changes.after(self._delta.rest, command)
            case BeginUpload() | CommitUpload() | RemoveArchived() | ForgetArchived() | GiveUpUploads():
                self._delta.rest = replace(self._delta.rest, archives=archives.after(self._delta, command))
            case CreateCut() | DropCut():
                self._delta.rest = replace(self._delta.rest, cuts=cut_changes.after(self._delta, command))
            case UpdateFeatures() | AlterClientQuotas():
                level = self._delta.rest.metadata_version
                self._delta.rest = cluster_changes.after(self._delta.rest, command)
                if self._delta.rest.metadata_version != level:
                    yield from self._delta.change_all(elections.level_changed)
            case AssignReplicasToDirs():
                self._delta.rest = directory_changes.after(self._delta, self._broker(command), command)
            case AddVoter() | RemoveVoter() | UpdateVoter():
                self._delta.rest = replace(self._delta.rest, voters=voter_changes.after(self._delta.rest, command))
            case _:
                assert_never(command)

    def note(self, tag: bytes, index: int) -> None:
        """Remember the tag of an entry, even if its command is refused, so that a duplicate is recognized."""
        self._recent = self._recent.having(tag, index)

    def has_noted(self, tag: bytes) -> bool:
        return tag in self._recent

    def pass_over(self, index: int) -> None:
        """Pass over the entry at `index`, which a newer version wrote."""
        self._index = index
        rest = self._delta.rest
        self._delta.rest = replace(rest, passed_over=rest.passed_over or index)

    def image(self, end: int = 0) -> Image:
        """Return the resulting image, as of entry `end` if that is a later one. Do not use the builder afterwards."""
        return self._delta.image(max(self._index, end), self._recent)

    def _format(self, command: FormatCluster) -> None:
        delta = self._delta
        if delta.rest.cluster_id not in ("", command.cluster_id):
            raise CommandRefused(ErrorCode.inconsistent_cluster_id, f"the cluster's id is {delta.rest.cluster_id}")
        features = delta.rest.features
        if not delta.rest.cluster_id and command.metadata_version != FIRST_LEVEL:
            features = {**features, METADATA_VERSION: command.metadata_version}
        delta.rest = replace(delta.rest, cluster_id=command.cluster_id, features=features)

    def _register_broker(self, command: RegisterBroker, index: int) -> Steps[None]:
        delta, known = self._delta, self._delta.rest.brokers.get(command.broker_id)
        levels = Levels(*command.levels)
        if why_not := levels.why_not(command.broker_id, delta.rest.metadata_version):
            raise CommandRefused(ErrorCode.unsupported_version, f"It cannot register: {why_not}.")
        if known is not None and known.incarnation == command.incarnation:
            delta.put_broker(replace(known, endpoints=command.listeners, rack=command.rack, log_dirs=command.log_dirs))
            return
        epoch = NEVER_REGISTERED if known is None else known.epoch
        if command.expected_epoch not in (None, epoch):
            raise CommandRefused(
                ErrorCode.stale_broker_epoch, f"Broker {command.broker_id} has a newer epoch, {epoch}."
            )
        if known is not None:
            yield from self._fence(known)
        least_min_isr = delta.rest.least_min_isr
        delta.put_broker(
            BrokerImage(
                command.broker_id,
                command.incarnation,
                index,
                command.listeners,
                command.rack,
                command.log_dirs,
                min_isr=command.min_isr,
                levels=levels,
            )
        )
        if delta.rest.least_min_isr < least_min_isr:
            yield from delta.change_all(self._min_isr_changed)
        if known is not None and directory_changes.missing(known.log_dirs, command.log_dirs):
            # A log directory is missing, and no command has removed its replicas from the in-sync sets (rule 8).
            yield from self._lose(command)

    def _lose(self, command: RegisterBroker) -> Steps[None]:
        delta, broker_id = self._delta, command.broker_id

        def lose(partition: PartitionImage, _: int) -> PartitionImage:
            return elections.lost(partition, broker_id, delta.is_alive)

        recorded = delta.rest.directories.get(broker_id)
        if not recorded:
            yield from delta.change_all(lose)
            return
        for topic in delta.all_topics():
            lost = directory_changes.lost(topic, broker_id, recorded, command.log_dirs)
            yield from delta.change(topic.id, [(index, lose) for index in lost])
        delta.rest = directory_changes.without_missing(delta.rest, broker_id, command.log_dirs)

    def _fence(self, broker: BrokerImage) -> Steps[None]:
        delta = self._delta
        if not broker.is_fenced:
            delta.put_broker(replace(broker, is_fenced=True))
            yield from delta.change_all(
                lambda partition, least: elections.without(partition, broker.id, delta.is_alive, least)
            )

    def _unfence(self, broker: BrokerImage) -> Steps[None]:
        delta = self._delta
        if broker.is_fenced:
            delta.put_broker(replace(broker, is_fenced=False))
            yield from delta.change_all(lambda partition, _: elections.returned(partition, delta.is_alive))

    def _begin_shutdown(self, broker: BrokerImage) -> Steps[None]:
        delta = self._delta
        if not broker.is_shutting_down:
            delta.put_broker(replace(broker, is_shutting_down=True))
            yield from delta.change_all(
                lambda partition, least: elections.stopping(partition, broker.id, delta.is_alive, least)
            )

    def _unregister(self, command: UnregisterBroker) -> None:
        broker = self._delta.broker(command.broker_id)
        if not broker.is_fenced:
            raise CommandRefused(ErrorCode.invalid_request, f"Broker {broker.id} is running: stop it first.")
        for topic in self._delta.all_topics():
            if any(broker.id in partition.replicas for partition in topic.partitions):
                message = f"Broker {broker.id} has replicas of topic '{topic.name}': move them to other brokers first."
                raise CommandRefused(ErrorCode.invalid_request, message)
        # Without a replica it has no recorded log directory either.
        self._delta.remove_broker(broker)

    def _broker(
        self,
        command: FenceBroker
        | UnfenceBroker
        | BeginControlledShutdown
        | AlterPartitions
        | DropReplicas
        | ReportUnflushed
        | AssignReplicasToDirs,
    ) -> BrokerImage:
        """Return the broker. Raises CommandRefused if another incarnation is registered than the command names."""
        broker = self._delta.broker(command.broker_id)
        if broker.epoch != command.broker_epoch:
            message = f"Broker {broker.id} has a newer epoch, {broker.epoch}."
            raise CommandRefused(ErrorCode.stale_broker_epoch, message)
        return broker

    def _create_topic(self, command: CreateTopic) -> None:
        delta = self._delta
        known = delta.topic_named(command.name)
        if known is not None and known.id == command.topic_id:
            return
        if known is not None or delta.topic(command.topic_id) is not None:
            raise CommandRefused(ErrorCode.topic_already_exists, f"Topic '{command.name}' already exists.")
        if not command.assignments:
            raise CommandRefused(ErrorCode.invalid_partitions, "A topic must have at least one partition.")
        delta.check_assignments(command.assignments)
        configs = dict(command.configs) if command.configs else EMPTY
        delta.put_topic(TopicImage(command.topic_id, command.name, self._new_partitions(command.assignments), configs))

    def _create_partitions(self, command: CreatePartitions) -> None:
        topic = self._delta.known_topic(command.topic_id)
        count, wanted = len(topic.partitions), command.expected_count + len(command.assignments)
        held = tuple(partition.replicas for partition in topic.partitions[command.expected_count :])
        if count == wanted and held == command.assignments:
            return
        if count != command.expected_count:
            raise CommandRefused(ErrorCode.invalid_partitions, f"Topic '{topic.name}' already has {count} partitions.")
        self._delta.check_assignments(command.assignments)
        added = self._new_partitions(command.assignments)
        self._delta.put_topic(replace(topic, partitions=topic.partitions + added))

    def _new_partitions(self, assignments: tuple[Assignment, ...]) -> tuple[PartitionImage, ...]:
        # Partitions with the same initial state share one object: a thousand on one broker cost a thousand pointers.
        is_alive = self._delta.is_alive
        alike = {replicas: elections.new_partition(replicas, is_alive) for replicas in dict.fromkeys(assignments)}
        return tuple(alike[replicas] for replicas in assignments)

    def _alter_partitions(self, command: AlterPartitions) -> Steps[None]:
        leader = self._broker(command)
        yield from self._change(
            ((change.topic_id, change.partition), self._as_proposed(change, leader)) for change in command.changes
        )

    def _as_proposed(self, change: IsrChange, leader: BrokerImage) -> Change:
        is_alive = self._delta.is_alive

        def propose(partition: PartitionImage, least: int) -> PartitionImage:
            if not self._fits(change, partition, leader):
                return partition
            proposed = elections.in_sync(partition, (member for member, _ in change.isr), least)
            if not leader.is_alive:
                # The leader is in controlled shutdown and waits until another replica can lead.
                proposed = elections.stopping(proposed, leader.id, is_alive, least)
            return elections.arrived(proposed, is_alive, self._delta.rest.metadata_version)

        return propose

    def _fits(self, change: IsrChange, partition: PartitionImage, leader: BrokerImage) -> bool:
        """Compare the epochs. Admit a new member only if alive in the incarnation that the leader has seen (rule 6)."""
        return (
            partition.leader == leader.id
            and partition.leader_epoch == change.leader_epoch
            and partition.partition_epoch == change.partition_epoch
            and any(member == leader.id for member, _ in change.isr)
            and all(
                member in partition.replicas and (member in partition.isr or self._is_alive_in(member, broker_epoch))
                for member, broker_epoch in change.isr
            )
        )

    def _is_alive_in(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        broker = self._delta.rest.brokers.get(broker_id)
        return broker is not None and broker.is_alive and broker.epoch == broker_epoch

    def _elect(self, command: ElectLeaders) -> Steps[None]:
        is_alive = self._delta.is_alive

        def elect(partition: PartitionImage, _: int) -> PartitionImage:
            match command.election:
                case Election.PREFERRED:
                    return elections.preferred(partition, is_alive)
                case Election.UNCLEAN:
                    return elections.unclean(partition, command.candidate, is_alive)
                case _:
                    assert_never(command.election)

        yield from self._change((place, elect) for place in command.partitions)

    def _reassign(self, command: ReassignPartition) -> None:
        delta, target = self._delta, command.replicas
        topic = delta.known_topic(command.topic_id)
        partition = delta.partition(topic.id, command.partition)
        if partition is None:
            raise CommandRefused(ErrorCode.unknown_topic_or_partition, f"{topic.name} does not have this partition.")
        if target is None:
            if not elections.is_moving(partition):
                raise CommandRefused(ErrorCode.no_reassignment_in_progress, "The partition is not being moved.")
            moved = elections.moved_back(partition, delta.is_alive, delta.rest.metadata_version)
        else:
            delta.check_assignments([target])
            moved = elections.moving(partition, target, delta.is_alive, delta.rest.metadata_version)
        if partition.isr and not moved.isr:
            message = (
                f"All replicas in sync ({', '.join(map(str, partition.isr))}) would be removed: keep one of them until"
                " another replica is in sync."
            )
            raise CommandRefused(ErrorCode.invalid_replica_assignment, message)
        at_once(self._change([((topic.id, command.partition), lambda _partition, _least: moved)]))

    def _drop_replicas(self, command: DropReplicas) -> Steps[None]:
        broker, is_alive = self._broker(command), self._delta.is_alive
        leave = elections.lost if command.is_gone else elections.damaged

        def drop(partition: PartitionImage, _: int) -> PartitionImage:
            return leave(partition, broker.id, is_alive)

        yield from self._change((place, drop) for place in command.partitions)

    def _report_unflushed(self, command: ReportUnflushed) -> Steps[None]:
        broker, is_alive = self._broker(command), self._delta.is_alive

        def drop(partition: PartitionImage, _: int) -> PartitionImage:
            return elections.unflushed(partition, broker.id, is_alive)

        yield from self._change((place, drop) for place in command.partitions)

    def _change(self, changes: Iterable[tuple[tuple[UUID, int], Change]]) -> Steps[None]:
        by_topic: dict[UUID, list[tuple[int, Change]]] = defaultdict(list)
        for (topic_id, index), change in changes:
            by_topic[topic_id].append((index, change))
        delta = self._delta
        for topic_id, wanted in by_topic.items():
            before = delta.topic(topic_id)
            yield from delta.change(topic_id, wanted)
            after = delta.topic(topic_id)
            if before is not None and after is not None and before is not after:
                indexes = [index for index, _ in wanted]
                delta.rest = directory_changes.without_removed(delta.rest, before, after, indexes)

    def _alter_configs(self, command: AlterConfigs) -> Steps[None]:
        delta = self._delta
        is_about_eligible = any(change.key == MIN_ISR for change in command.changes)
        match command.resource_type:
            case ResourceType.TOPIC:
                topic = delta.topic_named(command.name)
                if topic is None:
                    raise CommandRefused(ErrorCode.unknown_topic_or_partition, f"Topic '{command.name}' is unknown.")
                topic = replace(topic, configs=_changed(topic.configs, command.changes))
                delta.put_topic(topic)
                if is_about_eligible:
                    yield from delta.change_topic(topic, self._min_isr_changed)
            case ResourceType.BROKER:
                delta.rest = replace(delta.rest, broker_configs=_changed_among(delta.rest.broker_configs, command))
                if is_about_eligible:
                    yield from delta.change_all(self._min_isr_changed)
            case ResourceType.CLIENT_METRICS:
                subscriptions = _changed_among(delta.rest.client_metrics, command)
                delta.rest = replace(delta.rest, client_metrics=subscriptions)
            case ResourceType.GROUP:
                delta.rest = replace(delta.rest, group_configs=_changed_among(delta.rest.group_configs, command))
            case _:
                assert_never(command.resource_type)

    def _min_isr_changed(self, partition: PartitionImage, min_isr: int) -> PartitionImage:
        return elections.min_isr_changed(partition, min_isr, self._delta.rest.metadata_version)

    def _allocate_producer_ids(self, command: AllocateProducerIds) -> None:
        delta = self._delta
        if command.expected_next != delta.rest.next_producer_id:
            message = f"The next producer id is already {delta.rest.next_producer_id}."
            raise CommandRefused(ErrorCode.invalid_update_version, message)
        end = command.expected_next + command.count
        if command.count < 1 or end > FIRST_OF_ONE_BATCH:
            raise CommandRefused(
                ErrorCode.invalid_request, f"A block of {command.count} producer ids is not available."
            )
        delta.rest = replace(delta.rest, next_producer_id=end)


def _changed_among(by_name: Mapping[str, Mapping[str, str]], command: AlterConfigs) -> Mapping[str, Mapping[str, str]]:
    """Return the configs of all resources of a type after the command. A resource without configs is left out."""
    changed = dict(by_name)
    changed[command.name] = _changed(changed.get(command.name, EMPTY), command.changes)
    if not changed[command.name]:
        del changed[command.name]
    return changed


def _changed(configs: Mapping[str, str], changes: Iterable[ConfigChange]) -> Mapping[str, str]:
    changed = dict(configs)
    for change in changes:
        if configs.get(change.key) not in (change.expected, change.value):
            message = f"'{change.key}' was changed by another request meanwhile: try again."
            raise CommandRefused(ErrorCode.invalid_update_version, message)
        if change.value is None:
            changed.pop(change.key, None)
        else:
            changed[change.key] = change.value
    return changed

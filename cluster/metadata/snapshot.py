"""Metadata snapshots: one image per file, named by its last entry, so that the journal up to it can be removed."""

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from cordwood.archive.manifest import PartitionArchive
from cordwood.cluster.metadata.command_codec import acl_of
from cordwood.cluster.metadata.commands import Endpoint
from cordwood.cluster.metadata.credentials import DelegationToken, ScramCredential, ScramMechanism
from cordwood.cluster.metadata.cuts import Cut
from cordwood.cluster.metadata.features import OF_FIRST_RELEASE, Levels
from cordwood.cluster.metadata.fields import record_reader
from cordwood.cluster.metadata.image import (
    EMPTY,
    BrokerImage,
    Image,
    PartitionImage,
    TopicImage,
    by_id,
    by_name,
    by_place,
)
from cordwood.cluster.metadata.packed import pack, unpack
from cordwood.cluster.metadata.recent import RecentEntries
from cordwood.cluster.metadata.voters import Voter
from cordwood.storage import checkpoint
from cordwood.storage.disk import Disk, sync_directory
from cordwood.storage.errors import DamagedLog

VERSION = 8

_FIRST_WITH_ACLS = 2
_FIRST_WITH_FENCES = 3
_FIRST_WITH_RECENT = 4
_FIRST_WITH_CREDENTIALS = 5
_FIRST_WITH_ARCHIVES = 6
_FIRST_WITH_FEATURES = 7
_FIRST_WITH_GROUP_CONFIGS = 8

_NAME = re.compile(r"(\d{20})-(\d{10})\.snapshot")


class NewerVersion(ValueError):
    """A snapshot of a later release, which is not damaged. The message says what the operator has to do."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The image after entry `image.index`, which was written in this Raft term."""

    image: Image
    term: int = 0


def write(disk: Disk, directory: str, snapshot: Snapshot) -> int:
    """Write a snapshot. Durable on return. Blocks. Return the size of the image in bytes. Raises OSError.

    It can wait if resources are lacking: the journal still has every entry.
    """
    payload = encode(snapshot.image)
    checkpoint.write(disk, f"{directory}/{name_of(snapshot)}", payload)
    return len(payload)


def read_newest(disk: Disk, directory: str) -> Snapshot | None:
    """Return the newest snapshot, or None. Raises DamagedLog, NewerVersion.

    An older snapshot cannot replace a damaged one: the journal no longer has the entries between them.
    """
    found = _names(disk, directory)
    if not found:
        return None
    name, index, term = found[-1]
    path = f"{directory}/{name}"
    payload = checkpoint.read(disk, path)
    assert payload is not None, "the file was listed and is missing"
    try:
        image = decode(payload)
    except NewerVersion as newer:
        raise NewerVersion(f"{path} has {newer}: start this broker with the release that wrote it.") from None
    except (ValueError, TypeError, LookupError) as error:
        raise DamagedLog(path, 0, f"the file is not a valid image: {error}") from None
    if image.index != index:
        raise DamagedLog(path, 0, f"the file has the image of entry {image.index}")
    return Snapshot(image, term)


def names(disk: Disk, directory: str) -> list[str]:
    """Return the names of the snapshots, the newest last."""
    return [name for name, _, _ in _names(disk, directory)]


def remove_all_but_newest(disk: Disk, directory: str) -> None:
    """Remove superseded and unfinished snapshots."""
    old = [name for name, _, _ in _names(disk, directory)[:-1]]
    unfinished = [name for name in disk.list_directory(directory) if name.endswith(".snapshot.new")]
    for name in old + unfinished:
        disk.remove(f"{directory}/{name}")
    if old or unfinished:
        sync_directory(disk, directory)


def name_of(snapshot: Snapshot) -> str:
    return f"{snapshot.image.index:020}-{snapshot.term:010}.snapshot"


def encode(image: Image) -> bytes:
    """Encode an image as msgpack. The layout is in docs/log-format.md."""
    assert not image.passed_over, "an image that lacks an entry is for one broker alone"
    credentials = [
        [(user, mechanism, *astuple(one)) for (user, mechanism), one in image.scram_credentials.items()],
        [astuple(token) for token in image.delegation_tokens.values()],
    ]
    archives = [list(image.archives.items()), list(image.cuts.values())]
    # Brokers of the versions before read an image without these during a rolling upgrade.
    later = [
        image.features,
        list(image.client_quotas.items()),
        _directories(image),
        list(image.voters.items()),
        {name: dict(configs) for name, configs in image.client_metrics.items()},
    ]
    newest = [{name: dict(configs) for name, configs in image.group_configs.items()}]
    has_newest = any(newest)
    has_later = any(later) or has_newest
    has_archives = any(archives) or has_later
    has_credentials = any(credentials) or has_archives
    version = _FIRST_WITH_RECENT
    if has_credentials:
        version = _FIRST_WITH_CREDENTIALS
    if has_archives:
        version = _FIRST_WITH_ARCHIVES
    if has_later:
        version = _FIRST_WITH_FEATURES
    if has_newest:
        version = VERSION
    return pack(
        [
            version,
            image.index,
            image.cluster_id,
            image.next_producer_id,
            [_broker_fields(broker, has_levels=has_later) for broker in image.brokers.values()],
            [_topic_fields(topic) for topic in image.topics_by_name.values()],
            {name: dict(configs) for name, configs in image.broker_configs.items()},
            list(image.acls.items()),
            [(number, sorted(tags)) for number, tags in image.recent.chunks],
            *(credentials if has_credentials else ()),
            *(archives if has_archives else ()),
            *(later if has_later else ()),
            *(newest if has_newest else ()),
        ]
    )


def decode(payload: bytes) -> Image:
    """Decode an image. Raises NewerVersion for one of a later release, ValueError, TypeError or LookupError."""
    version, *rest = unpack(payload)
    if type(version) is int and version > VERSION:
        raise NewerVersion(f"version {version} of the metadata, and this release of Cordwood supports {VERSION}")
    if version not in range(1, VERSION + 1):
        raise ValueError(f"{version!r:.20} is no version of the metadata")
    if version < _FIRST_WITH_ACLS:
        rest.append(())
    if version < _FIRST_WITH_RECENT:
        rest.append(())
    if version < _FIRST_WITH_CREDENTIALS:
        rest.extend(((), ()))
    if version < _FIRST_WITH_ARCHIVES:
        rest.extend(((), ()))
    if version < _FIRST_WITH_FEATURES:
        rest.extend(({}, (), (), (), {}))
    if version < _FIRST_WITH_GROUP_CONFIGS:
        rest.append({})
    index, cluster_id, next_producer_id, brokers, topics, broker_configs, acls, recent, *rest = rest
    credentials, tokens, archives, cuts, *rest = rest
    features, quotas, directories, voters, client_metrics, group_configs = rest
    alike: dict[Any, PartitionImage] = {}
    topics_by_name = {fields[1]: _topic(fields, alike) for fields in topics}
    return Image(
        index,
        cluster_id,
        {fields[0]: _broker(fields, version) for fields in brokers},
        by_name(topics_by_name),
        by_id({topic.id: topic for topic in topics_by_name.values()}),
        broker_configs,
        next_producer_id,
        {acl_id: acl_of(fields) for acl_id, fields in acls},
        RecentEntries(tuple((number, frozenset(tags)) for number, tags in recent)),
        {(user, ScramMechanism(number)): ScramCredential(*keys) for user, number, *keys in credentials},
        {fields[0]: DelegationToken(*fields) for fields in tokens},
        by_place({place: _archive(fields) for place, fields in archives}),
        {fields[0]: _cut(fields) for fields in cuts},
        features,
        dict(quotas),
        {broker_id: by_place({(topic, index): name for topic, index, name in rows}) for broker_id, rows in directories},
        {broker_id: Voter(*voter) for broker_id, voter in voters},
        client_metrics,
        group_configs,
    )


_archive = record_reader(PartitionArchive, {})
_cut = record_reader(Cut, {})


def _directories(image: Image) -> list[object]:
    return [
        (broker_id, [(topic_id, index, directory) for (topic_id, index), directory in replicas.items()])
        for broker_id, replicas in image.directories.items()
    ]


def _broker_fields(broker: BrokerImage, *, has_levels: bool) -> list[object]:
    return [
        broker.id,
        broker.incarnation,
        broker.epoch,
        broker.endpoints,
        broker.rack,
        broker.log_dirs,
        broker.is_fenced,
        broker.is_shutting_down,
        broker.min_isr,
        *([broker.levels] if has_levels else ()),
    ]


def _broker(fields: Any, version: int) -> BrokerImage:
    broker_id, incarnation, epoch, endpoints, *rest = fields
    if version < _FIRST_WITH_FENCES:
        # Before fencing existed, a broker could lead from its registration on.
        rest.append(False)
    levels = rest.pop() if version >= _FIRST_WITH_FEATURES else OF_FIRST_RELEASE
    listeners = tuple(Endpoint(*endpoint) for endpoint in endpoints)
    return replace(BrokerImage(broker_id, incarnation, epoch, listeners, *rest), levels=Levels(*levels))


def _topic_fields(topic: TopicImage) -> list[object]:
    partitions = [
        (
            partition.replicas,
            partition.isr,
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            partition.elr,
            partition.adding,
            partition.removing,
        )
        for partition in topic.partitions
    ]
    return [topic.id, topic.name, partitions, dict(topic.configs)]


def _topic(fields: Any, alike: dict[Any, PartitionImage]) -> TopicImage:
    """Decode a topic. Equal partitions share one object, as they did before encoding."""
    topic_id, name, rows, configs = fields
    partitions = []
    for row in rows:
        partition = alike.get(row)
        if partition is None:
            partition = alike[row] = PartitionImage(*row)
        partitions.append(partition)
    kept: Mapping[str, str] = configs or EMPTY
    return TopicImage(topic_id, name, tuple(partitions), kept)


def _names(disk: Disk, directory: str) -> list[tuple[str, int, int]]:
    found = [(name, _NAME.fullmatch(name)) for name in disk.list_directory(directory)]
    return sorted((name, int(match[1]), int(match[2])) for name, match in found if match)

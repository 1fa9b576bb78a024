"""Loader of classic groups, of which each has one record."""

from collections.abc import Iterator

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.classic.group import ClassicGroup
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.formats import GROUP_KEY, decode_group
from cordwood.cluster.groups.group_loader import GroupLoader
from cordwood.storage.steps import Steps


class ClassicLoader(GroupLoader):
    """The loader of the classic groups of one shard."""

    key_versions = (GROUP_KEY,)

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._records: list[tuple[str, bytes]] = []

    def take(self, version: int, key: FieldReader, value: bytes) -> Steps[None]:  # noqa: ARG002
        self._records.append((key.string(), value))
        yield

    def groups(self) -> Iterator[ClassicGroup | None]:
        for group_id, value in self._records:
            saved = yield from decode_group(value)
            yield (yield from ClassicGroup.restore(group_id, saved, self._context.settings))

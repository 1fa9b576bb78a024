"""Loading of groups from the records of `__consumer_offsets`: which kind of group a key version belongs to.

A kind of group adds its loader to `loaders`, and the coordinator restores its groups with all others.
"""

from collections.abc import Iterator

from cordwood.cluster.coordination.fields import FieldReader
from cordwood.cluster.groups.consumer.loader import ConsumerLoader
from cordwood.cluster.groups.context import GroupContext
from cordwood.cluster.groups.formats import GROUP_KEY, decode_group
from cordwood.cluster.groups.group import ClassicGroup
from cordwood.cluster.groups.group_loader import GroupLoader
from cordwood.cluster.groups.share.loader import ShareLoader
from cordwood.storage.steps import Steps


class ClassicLoader(GroupLoader):
    """The loader of classic groups: one record each."""

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


def loaders(context: GroupContext) -> list[GroupLoader]:
    """Return a loader for each kind of group. A group of a later one replaces one of the same id."""
    return [ClassicLoader(context), ConsumerLoader(context), ShareLoader(context)]

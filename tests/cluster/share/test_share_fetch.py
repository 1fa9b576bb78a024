"""Records for members of a share group: acquisition, acknowledgement, locks and sessions, by raw requests."""

from kio.schema.errors import ErrorCode
from share_fixture import ShareFixture, with_members


def test_a_member_gets_whole_batches_and_acknowledges_them() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b", "c")
        worker = group.member()
        fetched = await worker.fetch()
        assert fetched.acquired == [(0, 2, 1)]
        assert fetched.values == [b"a", b"b", b"c"]
        assert await worker.acknowledge(0, 2) is ErrorCode.none
        assert (await worker.fetch(partitions=())).acquired == []
        await group.produce("d")
        assert (await worker.fetch(partitions=())).values == [b"d"]

    with_members(story)


def test_two_members_never_have_the_same_record() -> None:
    async def story(group: ShareFixture) -> None:
        await group.produce("a", "b")
        await group.produce("c", "d")
        one, other = group.member(), group.member()
        assert (await one.fetch(max_records=1)).values == [b"a", b"b"], "whole batches"
        assert (await other.fetch()).values == [b"c", b"d"]
        assert await other.acknowledge(0, 1) is ErrorCode.invalid_record_state

    with_members(story)

"""Event ids as a client returns them to a server: one that the server has sent is accepted."""

from uuid import UUID

import pytest
from http_fixture import HttpStory, run

from cordwood.cluster.http.bodies import HEADER_BYTES_MAX
from cordwood.cluster.http.records.formats import Events
from cordwood.cluster.metadata.commands import BrokerId, CreateTopic
from cordwood.storage.types import TopicPartition

PARTITIONS = 400
LAST_OFFSET = (1 << 63) - 1


def longest_id() -> str:
    """Return an id as long as they get for so many partitions."""
    places = [TopicPartition("wide", partition) for partition in range(PARTITIONS)]
    event = Events(dict.fromkeys(places, LAST_OFFSET)).passed(places[0], LAST_OFFSET - 1)
    return event.decode().removeprefix("id: ").strip()


@pytest.mark.parametrize(
    ("event_id", "status"),
    [
        (longest_id(), 200),
        (longest_id().ljust(HEADER_BYTES_MAX, "0"), 400),
        (longest_id().ljust(HEADER_BYTES_MAX + 1, "0"), 400),
    ],
    ids=["the longest", "no id", "too long a header"],
)
def test_the_longest_id_of_four_hundred_partitions_is_accepted_back(event_id: str, status: int) -> None:
    async def story() -> None:
        async with HttpStory(has_api=True) as broker:
            broker.register(1)
            broker.metadata.apply(CreateTopic(UUID(int=1), "wide", ((BrokerId(1),),) * PARTITIONS))
            asked = (
                "GET /v1/topics/wide/records HTTP/1.1",
                "Host: 127.0.0.1",
                "Accept: text/event-stream",
                f"Last-Event-ID: {event_id}",
            )
            answer = await broker.send("\r\n".join((*asked, "", "")).encode())
            assert f" {status} ".encode() in answer.splitlines()[0]

    run(story())

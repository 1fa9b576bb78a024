"""Requests whose task is cancelled before it begins, as when a broker stops: no coroutine is left that never ran."""

import gc
import warnings
from datetime import timedelta

import pytest
from handlers_fixture import HandlersStory, tell

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.handlers.fetch import LARGE_REQUEST_BYTES

FULL = {"max_bytes": 1, "isolation_level": 0, "session_id": 0, "session_epoch": -1, "forgotten_topics_data": []}


@pytest.mark.parametrize("topics", [1, LARGE_REQUEST_BYTES // 8])
@pytest.mark.parametrize("api", [ApiKey.LIST_OFFSETS, ApiKey.FETCH])
def test_a_broker_stops_before_a_request_has_begun(api: ApiKey, topics: int) -> None:
    async def story(broker: HandlersStory) -> None:
        broker.elect()
        rows = [{"topic": f"topic-{number}", "partitions": []} for number in range(topics)]
        if api is ApiKey.FETCH:
            broker.client.send(api, 12, replica_id=-1, max_wait=timedelta(0), min_bytes=0, topics=rows, **FULL)
        else:
            named = [{"name": row["topic"], "partitions": []} for row in rows]
            broker.client.send(api, 8, replica_id=-1, isolation_level=0, topics=named)
        await broker._dispatcher.close()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        tell(story)
        gc.collect()
    assert [warning for warning in map(str, warned) if "never awaited" in warning] == []

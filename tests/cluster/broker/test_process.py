"""Uncaught exceptions: a broken invariant ends the broker, unless it was contained in a partition or connection."""

import asyncio
from typing import Any

import pytest

from cordwood.cluster.broker.process import exception_handler
from cordwood.replication.tasks import CONTAINED

BROKEN = AssertionError("an invariant")


@pytest.mark.parametrize(
    ("context", "ends"),
    [
        pytest.param({"exception": BROKEN}, True, id="a broken invariant"),
        pytest.param({"exception": KeyError("k")}, False, id="another error"),
        pytest.param({"exception": BROKEN, CONTAINED: True}, False, id="of a partition or a loop"),
        pytest.param({"exception": BROKEN, "protocol": object()}, False, id="of a connection"),
        pytest.param({"message": "no exception"}, False, id="a message"),
    ],
)
def test_what_ends_the_broker(context: dict[str, Any], *, ends: bool) -> None:
    async def story() -> bool:
        loop = asyncio.get_running_loop()
        failure: asyncio.Future[str] = loop.create_future()
        exception_handler(failure)(loop, {"message": "", **context})
        return failure.done()

    assert asyncio.run(story()) is ends

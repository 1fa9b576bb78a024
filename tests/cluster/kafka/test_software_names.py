"""Software names of clients, which a connection keeps as long as it is open (ADR 26)."""

from types import SimpleNamespace
from typing import Any

import pytest
from handlers_fixture import HandlersStory, tell

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.call import NO_SOFTWARE
from cordwood.cluster.metadata.image import Image

LONG = "a" * 32_000


@pytest.mark.parametrize(
    ("name", "version", "kept"),
    [
        ("franz-go", "1.18.0", ("franz-go", "1.18.0")),
        (LONG, LONG, (LONG[:100], LONG[:100])),
        (f"{LONG}\N{FIRE}", "1", NO_SOFTWARE),
        ("a", f"1 {LONG}", NO_SOFTWARE),
        ("", "", NO_SOFTWARE),
    ],
    ids=["usual", "long", "wide", "with a space", "empty"],
)
def test_a_connection_keeps_little_of_its_clients_name(name: str, version: str, kept: tuple[str, str]) -> None:
    async def story(broker: HandlersStory) -> None:
        assert await kept_of(broker, 4, client_software_name=name, client_software_version=version) == kept

    tell(story)


def test_an_older_client_has_no_name() -> None:
    async def story(broker: HandlersStory) -> None:
        assert await kept_of(broker, 2) == NO_SOFTWARE

    tell(story)


async def kept_of(broker: HandlersStory, version: int, **names: str) -> tuple[str, str]:
    quorum: Any = SimpleNamespace(image=Image())
    broker.services.quorum, broker.services.served_apis = quorum, ()
    await broker.ask(ApiKey.API_VERSIONS, version, **names)
    return broker.client._channel._connection.software

"""JSON bodies with too many records are refused before their records are decoded."""

import asyncio

import pytest

from cordwood.cluster.http.records.given import RECORDS_MAX, TOKENS_PER_TURN, check_count
from cordwood.cluster.http.refusal import HttpRefusal

NESTED = b'{"value":{"a":[{},{"b":"}{\\"{"}]},"headers":{"h":null}}'


def body(record: bytes, count: int) -> bytes:
    return b'{"records":[' + b",".join([record] * count) + b"]}"


@pytest.mark.parametrize("record", [b'{"value":0}', NESTED])
def test_as_many_records_as_are_taken_pass(record: bytes) -> None:
    asyncio.run(check_count(body(record, RECORDS_MAX)))


@pytest.mark.parametrize("record", [b'{"value":0}', b'{"\\u0076alue":0}', b"{}", NESTED])
def test_one_record_more_is_refused(record: bytes) -> None:
    with pytest.raises(HttpRefusal, match="records"):
        asyncio.run(check_count(body(record, RECORDS_MAX + 1)))


@pytest.mark.parametrize(
    "content",
    [b"{" * 20_000, b"}" * 20_000 + b"{" * 20_000, b'{"' * 20_000, b"{" * 20_000 + b'\\"' * 200_000, b"{\xff" * 20_000],
)
def test_what_is_no_json_is_left_to_the_decoder(content: bytes) -> None:
    asyncio.run(check_count(content))


def test_others_have_their_turns_while_a_body_is_looked_through() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def reported() -> None:
        others = asyncio.ensure_future(count())
        await check_count(body(NESTED, RECORDS_MAX))
        others.cancel()

    asyncio.run(reported())
    assert turns >= RECORDS_MAX // TOKENS_PER_TURN

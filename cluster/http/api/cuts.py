"""Cuts over HTTP: list, describe, create and drop."""

from typing import Annotated

import msgspec
from aiohttp import web
from kio.schema.errors import ErrorCode

from cordwood.client.cut_messages import (
    CreateCutRequest,
    DescribeCutsRequest,
    DescribedCut,
    DropCutRequest,
)
from cordwood.cluster.http.context import Context
from cordwood.cluster.http.refusal import HttpRefusal, check, json_response
from cordwood.cluster.http.route import ApiRequest, Nothing, Route
from cordwood.cluster.http.security.rights import ALTER_TOPIC, DESCRIBE_TOPIC
from cordwood.storage.types import NEVER_EXPIRES

CREATION_S = 30.0
"""A cut is created once every broker has pinned its offsets."""


class PinnedPartition(msgspec.Struct, frozen=True):
    """The pinned offsets of one partition: from `start` up to `end`."""

    partition: int
    start: int
    end: int


class PinnedTopic(msgspec.Struct, frozen=True):
    """A topic of a cut."""

    topic: str
    id: str
    partitions: list[PinnedPartition]


class CutDescription(msgspec.Struct, frozen=True):
    """A cut. Times are milliseconds since 1970."""

    name: str
    created_ms: int
    expires_ms: int | None
    """Null for a cut that stays until it is dropped."""
    topics: list[PinnedTopic]


class Cuts(msgspec.Struct, frozen=True):
    """Cuts by name."""

    cuts: list[CutDescription]


class NewCut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cut to create."""

    name: str
    topics: Annotated[list[str], msgspec.Meta(min_length=1, max_length=10_000)]
    lifetime_ms: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The cut expires after this time; without it, it stays until it is dropped."""


class DroppedCut(msgspec.Struct, frozen=True):
    """The dropped cut."""

    name: str


async def list_cuts(asked: ApiRequest[Nothing, Nothing]) -> Cuts:
    """List the cuts."""
    return Cuts(await _described(asked.context, None))


async def describe_cut(asked: ApiRequest[Nothing, Nothing]) -> CutDescription:
    """Describe a cut with its offsets."""
    name = asked.path["cut"]
    found = await _described(asked.context, name)
    if not found:
        raise HttpRefusal(404, f"There is no cut named {name}.", ErrorCode.resource_not_found)
    return found[0]


async def create_cut(asked: ApiRequest[Nothing, NewCut]) -> web.Response:
    """Create a cut of topics: their committed records stay as they are until it is dropped or expires."""
    wanted = asked.body
    lifetime_ms = NEVER_EXPIRES if wanted.lifetime_ms is None else min(wanted.lifetime_ms, (1 << 63) - 1)
    request = CreateCutRequest(name=wanted.name, topics=tuple(wanted.topics), lifetime_ms=lifetime_ms)
    answer = await asked.context.cluster.ask(None, request, CREATION_S)
    check(answer.error_code, answer.error_message)
    return json_response(_cut(answer.cuts[0]), 201)


async def drop_cut(asked: ApiRequest[Nothing, Nothing]) -> DroppedCut:
    """Drop a cut."""
    name = asked.path["cut"]
    answer = await asked.context.cluster.ask(None, DropCutRequest(name=name))
    check(answer.error_code, answer.error_message)
    return DroppedCut(name)


async def _described(context: Context, name: str | None) -> list[CutDescription]:
    answer = await context.cluster.ask(None, DescribeCutsRequest(names=None if name is None else (name,)))
    return [_cut(cut) async for cut in context.turns.each(answer.cuts)]


def _cut(cut: DescribedCut) -> CutDescription:
    topics = [
        PinnedTopic(
            topic.name,
            str(topic.topic_id),
            [PinnedPartition(row.partition_index, row.start, row.end) for row in topic.partitions],
        )
        for topic in cut.topics
    ]
    return CutDescription(cut.name, cut.created_ms, None if cut.expires_ms == NEVER_EXPIRES else cut.expires_ms, topics)


_ALL, _ONE = "/v1/cuts", "/v1/cuts/{cut}"

ROUTES = (
    Route("GET", _ALL, list_cuts, Nothing, Nothing, Cuts, requires=(), each=(DESCRIBE_TOPIC,), refusals=(503,)),
    Route(
        "POST",
        _ALL,
        create_cut,
        Nothing,
        NewCut,
        CutDescription,
        requires=(),
        each=(ALTER_TOPIC,),
        statuses=(201,),
        refusals=(404, 409, 503),
    ),
    Route(
        "GET",
        _ONE,
        describe_cut,
        Nothing,
        Nothing,
        CutDescription,
        requires=(),
        each=(DESCRIBE_TOPIC,),
        refusals=(404, 503),
    ),
    Route(
        "DELETE",
        _ONE,
        drop_cut,
        Nothing,
        Nothing,
        DroppedCut,
        requires=(),
        each=(ALTER_TOPIC,),
        refusals=(404, 503),
    ),
)

"""The read-only routes of one broker: health, readiness, metrics, and `/v1/status`."""

from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from cordwood.cluster.http.metrics.scrape import Scraper
from cordwood.cluster.http.refusal import json_response
from cordwood.cluster.http.watched import Watched, lag_records, room_of
from cordwood.cluster.repairs.damage import DamageStatus
from cordwood.replication.leader_role import FollowerStatus, LeaderRole
from cordwood.replication.log_directory import LogDirectory
from cordwood.replication.replicas import LeftOut

Json = dict[str, Any]


class Routes:
    """The routes of one broker. They change nothing."""

    def __init__(self, watched: Watched) -> None:
        self._watched, self._scraper = watched, Scraper(watched)

    def table(self) -> tuple[web.RouteDef, ...]:
        return (
            web.get("/healthz", self._health),
            web.get("/readyz", self._readiness),
            web.get("/metrics", self._metrics),
            web.get("/v1/status", self._status),
        )

    async def _health(self, _request: web.Request) -> web.Response:
        """Respond if the process and its event loop run."""
        return web.Response(text="alive\n")

    async def _readiness(self, _request: web.Request) -> web.Response:
        reason = self._watched.why_not_ready()
        return web.Response(text="ready\n") if reason is None else web.Response(text=f"{reason}\n", status=503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        text = await self._scraper.scrape()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _status(self, _request: web.Request) -> web.Response:
        return json_response(await status_of(self._watched))


async def status_of(watched: Watched) -> Json:
    """Return cluster membership, led partitions and their followers, disks and damage, for JSON.

    Offsets are half-open: an end is the next offset.
    """
    image = watched.quorum.image
    me = image.brokers.get(watched.broker_id)
    replicas = watched.turns.each(list(watched.replicas))
    led = [_led(replica.leading) async for replica in replicas if replica.leading is not None]
    return {
        "broker_id": watched.broker_id,
        "cluster_id": image.cluster_id,
        "broker_epoch": None if me is None else me.epoch,
        "incarnation": None if me is None else str(me.incarnation),
        "is_fenced": me is None or me.is_fenced,
        "why_not_ready": watched.why_not_ready(),
        "controller_id": watched.quorum.status().leader_id,
        "partitions_led": led,
        "log_directories": [
            *(_directory(directory) for directory in watched.replicas.directories),
            *(_left_out(directory) for directory in watched.replicas.left_out),
        ],
        "damaged_places": [_damage(place) for place in watched.damage.places()],
    }


def _led(leader: LeaderRole) -> Json:
    partition, view = leader.partition, leader.view
    return {
        "topic": partition.topic,
        "partition": partition.index,
        "leader_epoch": partition.leader_epoch,
        "log_start": partition.log.log_start,
        "high_watermark": partition.high_watermark,
        "log_end": partition.log.log_end,
        "in_sync_replicas": sorted(view.isr),
        "min_in_sync_replicas": view.assignment.min_isr,
        "followers": [_follower(leader, follower) for follower in leader.followers()],
    }


def _follower(leader: LeaderRole, follower: FollowerStatus) -> Json:
    return {
        "broker_id": follower.broker_id,
        "flushed_end": None if follower.flushed_end < 0 else follower.flushed_end,
        "lag_records": lag_records(leader, follower),
        "is_in_sync": follower.is_in_sync,
    }


def _damage(place: DamageStatus) -> Json:
    """Return a finding as JSON. An empty topic stands for damage in the broker's own files."""
    return {
        "topic": place.topic,
        "partition": place.partition,
        "path": place.path,
        "position": place.position,
        "what": place.what,
        "state": place.state.value,
    }


def _left_out(directory: LeftOut) -> Json:
    return {"path": directory.path, "error": str(directory.error), "free_bytes": None, "total_bytes": None}


def _directory(directory: LogDirectory) -> Json:
    room = room_of(directory)
    return {
        "path": directory.path,
        "error": None if directory.error is None else str(directory.error),
        "free_bytes": None if room is None else room.free_bytes,
        "total_bytes": None if room is None else room.total_bytes,
    }

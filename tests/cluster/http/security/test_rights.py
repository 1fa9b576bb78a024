"""Rights over HTTP: nothing beyond them, and no hint of what is hidden."""

from typing import Any

import pytest
from access_fixture import DESCRIBES, SecuredStory, add_topics
from http_fixture import run

from cordwood.cluster.config.settings import Settings
from cordwood.cluster.http.api.table import ROUTES
from cordwood.cluster.http.security.rights import RIGHTS_OF_PATHS, RouteRight


def test_every_route_says_which_rights_it_requires() -> None:
    without = {(route.method, route.path) for route in ROUTES if not route.requires + route.each}
    assert without == {("POST", "/v1/login"), ("POST", "/v1/logout"), ("GET", "/v1/session")}


def test_what_is_hidden_looks_like_what_is_not_there() -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            add_topics(broker, "orders")
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            for route in ROUTES:
                if "{topic}" not in route.path:
                    continue
                there = await broker.ask(route.path.format(topic="orders"), route.method, {}, **session)
                missing = await broker.ask(route.path.format(topic="nothing"), route.method, {}, **session)
                assert (there.status, there.json["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED"), route
                assert missing.status == 403
                assert missing.text == there.text.replace("orders", "nothing")

    run(story())


def right_of(right: RouteRight, name: str) -> str:
    return f"alice {right.operation.name} {right.resource.name} {name}"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_is_refused_without_its_right(route: Any) -> None:
    async def story() -> None:
        names = {"topic": "orders", "group": "readers", "transactional_id": "payments", "broker_id": "1", "cut": "cut"}
        path = route.path.format(**names)
        async with SecuredStory() as broker:
            add_topics(broker, "orders")
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            # Every right but those of the route, on the right resources; and those of the route on other resources.
            for right in route.requires:
                name = right.name_in({parameter: f"{text}-of-others" for parameter, text in names.items()})
                broker.authorizer.rights.add(right_of(right, f"{name}x"))
            for other in ROUTES:
                for right in (right for right in other.requires if right not in route.requires):
                    broker.authorizer.rights.add(right_of(right, right.name_in(names)))
            if route.requires:
                answer = await broker.ask(path, route.method, {}, **session)
                assert answer.status == 403, answer.text
                assert answer.json["code"].endswith("_AUTHORIZATION_FAILED")
                assert route.requires[0].operation.name in answer.json["error"]
            for right in route.requires:
                broker.authorizer.rights.add(right_of(right, right.name_in(names)))
            assert await broker.status(path, route.method, {}, **session) not in (401, 403)

    run(story())


@pytest.mark.parametrize("path", sorted(path for path, rights in RIGHTS_OF_PATHS.items() if rights))
def test_a_path_outside_the_api_is_refused_without_its_right(path: str) -> None:
    async def story() -> None:
        async with SecuredStory() as broker:
            add_topics(broker, "orders")
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            answer = await broker.ask(path, **session)
            assert (answer.status, answer.json["code"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
            broker.authorizer.rights.add(DESCRIBES)
            assert await broker.status(path, **session) == 200

    run(story())


def test_lists_have_only_what_the_user_may_see() -> None:
    async def story() -> None:
        rights = ("alice DESCRIBE TOPIC b", "alice DESCRIBE TOPIC d", "alice DESCRIBE_CONFIGS TOPIC d")
        async with SecuredStory(*rights) as broker:
            add_topics(broker, "a", "b", "c", "d")
            broker.add_user("alice", "secret")
            session = await broker.session("alice", "secret")
            topics = (await broker.ask("/v1/topics", **session)).json["topics"]
            assert [(topic["name"], topic["configs"]) for topic in topics] == [
                ("b", {}),
                ("d", {"retention.ms": "1000"}),
            ]
            partitions = (await broker.ask("/v1/partitions", **session)).json["partitions"]
            assert [partition["topic"] for partition in partitions] == ["b", "d"]

    run(story())


def test_without_a_required_login_acls_decide_about_anonymous_clients() -> None:
    async def story() -> None:
        async with SecuredStory("ANONYMOUS DESCRIBE TOPIC orders", DESCRIBES, settings=Settings()) as broker:
            add_topics(broker, "orders")
            broker.add_user("alice", "secret")
            assert await broker.status("/v1/topics/orders") == 200
            refused = await broker.ask("/v1/cluster")
            assert (refused.status, refused.json["error"]) == (
                403,
                "A client without a login has no right to DESCRIBE on the cluster.",
            )
            session = await broker.session("alice", "secret")
            assert await broker.status("/v1/cluster", **session) == 200
            assert await broker.status("/v1/topics/orders", **session) == 403

    run(story())

"""Every served API: before authentication, without a right, and with other rights than the required one."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode
from request_of_each_api import FLIGHTS, NAMES, PAY, REFUSALS, TEAM, Case, cases
from requests_without_rights import MODULES, SUFFICIENT, Grant, codes_in, refused_in, texts_in
from secure_cluster import BROKERS

from attempts.attempt import (
    CLOSED,
    NOTHING_SHOWN,
    Attempt,
    Audited,
    Port,
    Stranger,
    codes_of,
    refusal_of,
    unproved,
)
from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.registry import served_apis
from cordwood.cluster.metadata.acls import AclOperation, AclResource
from cordwood.cluster.security.audited_authorizer import DENIED
from cordwood.cluster.security.authorizer import OPERATIONS_ON

FIRST_STEPS = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
"""What a client may send before it is authenticated."""
NOT_REFUSED = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)
"""APIs that require no right. Those of SASL are attempts of their own."""
WITHOUT_RIGHTS = "eve"
LACKING = "lacking"
_ANY = UUID(int=1)
_Op = AclOperation
IMPLYING = {
    _Op.DESCRIBE: {_Op.READ, _Op.WRITE, _Op.DELETE, _Op.ALTER},
    _Op.DESCRIBE_CONFIGS: {_Op.ALTER_CONFIGS},
}
"""The operations that imply an operation (Kafka's StandardAuthorizer)."""


def _case(stranger: Stranger, api: ApiKey, number: int) -> Case:
    return cases(FLIGHTS, stranger.topic_id)[api][number]


def _before_authentication(api: ApiKey, stranger: Stranger) -> str:
    with stranger.kafka() as client:
        return refusal_of(
            lambda: client.ask(api, MODULES[api].KEY.versions[-1], **dict(_case(stranger, api, 0).fields))
        )


def _as_user(user: str, api: ApiKey, number: int, stranger: Stranger) -> str:
    for broker_id in BROKERS:
        with stranger.as_user(user, broker_id) as client:
            answer = client.ask(api, MODULES[api].KEY.versions[-1], **dict(_case(stranger, api, number).fields))
        if ErrorCode.not_coordinator not in codes_in(answer):
            break
    codes = codes_of(answer)
    if codes == "NONE" and not {FLIGHTS, TEAM, PAY}.intersection(texts_in(answer)):
        return NOTHING_SHOWN
    return codes


def others_than(lacking: Grant, alternatives: set[Grant]) -> set[Grant]:
    """Return all rights on a type of resource but one, those that imply it, and those that do in place of it."""
    operation, resource = lacking
    wrong = {operation, *IMPLYING.get(operation, ()), *(one for one, on in alternatives if on is resource)}
    return {(one, resource) for one in AclOperation if OPERATIONS_ON[resource] >> one & 1 and one not in wrong}


class Lack(NamedTuple):
    """A user with all rights on a type of resource but the required one, and with the other required rights."""

    user: str
    api: ApiKey
    number: int
    """Of the case."""
    lacking: Grant
    given: set[Grant]
    is_one_of_many: bool
    """Whether the request requires further rights."""
    has_alternative: bool
    """Whether another right would do, too. The audit log has a line about one of them."""


def lacks() -> Iterator[Lack]:
    """Yield the users with wrong rights."""
    for api, of_cases in SUFFICIENT.items():
        for number, sufficient in enumerate(of_cases):
            alternatives = {grant for rights in sufficient for grant in rights if len(rights) == 1}
            for rights in sufficient:
                for lacking in sorted(rights):
                    user = f"{LACKING}.{api.name}.{number}.{lacking[0].name}.{lacking[1].name}"
                    given = (rights - {lacking}) | others_than(lacking, alternatives)
                    yield Lack(user, api, number, lacking, given, len(rights) > 1, len(sufficient) > 1)


def name_of(api: ApiKey, resource: AclResource) -> str:
    """Return the name of the resource that a request to the API is about."""
    if resource is AclResource.TOPIC and api is ApiKey.CREATE_TOPICS:
        return "new"
    return {**NAMES, AclResource.USER: "User:bob", AclResource.DELEGATION_TOKEN: "x"}[resource]


def _attempts() -> Iterator[Attempt]:
    apis = [ApiKey(served.key) for served in served_apis()]
    for api in apis:
        if api not in FIRST_STEPS:
            detail = f"a request to API {api.value} while the authentication is new"
            yield Attempt(
                f"{api.name} before authentication",
                Port.KAFKA,
                partial(_before_authentication, api),
                CLOSED,
                unproved(detail),
            )
    for api in apis:
        for number, case in enumerate(cases(FLIGHTS, _ANY)[api] if api not in NOT_REFUSED else ()):
            codes = refused_in(api, MODULES[api].KEY.versions[-1], case)
            name = f"{api.name} {number} without rights"
            yield Attempt(
                name, Port.KAFKA, partial(_as_user, WITHOUT_RIGHTS, api, number), _text(codes), _audited(api, codes)
            )
    for user, api, number, lacking, _, is_one_of_many, has_alternative in lacks():
        case = cases(FLIGHTS, _ANY)[api][number]
        codes = {REFUSALS[lacking[1]]} if is_one_of_many else refused_in(api, MODULES[api].KEY.versions[-1], case)
        yield Attempt(
            f"{api.name} {number} without {lacking[0].name} on {lacking[1].name}, with other rights",
            Port.KAFKA,
            partial(_as_user, user, api, number),
            _text(codes),
            Audited("" if has_alternative else lacking[0].name, DENIED, f"User:{user}"),
        )


def _text(codes: Iterable[ErrorCode]) -> str:
    return " ".join(sorted({code.name.upper() for code in codes})) or NOTHING_SHOWN


def _audited(api: ApiKey, codes: Iterable[ErrorCode]) -> Audited | None:
    """Return the line of the audit log. A name that is left out of a list is not refused, and has none."""
    principal = f"User:{WITHOUT_RIGHTS}"
    if api in (ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN):
        return Audited(api.name, ErrorCode.delegation_token_not_found.name.upper(), principal)
    return Audited("", DENIED, principal) if set(codes) else None


KAFKA_APIS = tuple(_attempts())

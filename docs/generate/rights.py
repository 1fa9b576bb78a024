"""The table of the rights that each API of Kafka requires, from the handlers' declarations."""

import inspect
from collections.abc import Iterator
from types import ModuleType

import pages

from cordwood.cluster.kafka.api_keys import ApiKey
from cordwood.cluster.kafka.registry import load
from cordwood.cluster.kafka.rights import Right

_INTRODUCTION = """\
With `authorizer.class.name` set, each request requires rights, which ACLs give or deny. The decisions are those of
Kafka's StandardAuthorizer, and so are the error codes:

- A principal in `super.users` may do everything.
- A DENY wins over every ALLOW. If no ACL matches, the answer is no; only where no ACL names the resource at all,
  `allow.everyone.if.no.acl.found` counts.
- READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS. A DENY implies nothing:
  who may not read a topic may still describe it.
- A name is literal, a prefix, or `*` for every name. A host is an address, a network such as `10.0.0.0/8`, or `*`.
- Connections between brokers require CLUSTER_ACTION on the cluster: to replicate, and to send requests on behalf of
  users. Put the principals of brokers into `super.users`.
- A change of ACLs takes effect at each broker with the metadata that contains it: for the next request, and for
  fetches that wait.

Without a right on a topic, a request gets TOPIC_AUTHORIZATION_FAILED (29) for that topic, also if the topic does not
exist; without one on a group GROUP_AUTHORIZATION_FAILED (30), on the cluster CLUSTER_AUTHORIZATION_FAILED (31), on a
transactional id TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53), and on the tokens of a user
DELEGATION_TOKEN_AUTHORIZATION_FAILED (65). Other elements of the same request are handled. Lists leave out what the
client may not describe.

Without `authorizer.class.name` every client may do everything. ACLs can be created and described then, and are not
enforced: so a cluster gets its ACLs before it is closed. Kafka without an authorizer refuses to store them
(SECURITY_DISABLED).
"""


def page() -> str:
    """Return the whole page as Markdown."""
    rows = (row for key in sorted(ApiKey) for row in _rows(load(key)))
    table = pages.table(("API", "Right", "When"), rows)
    note = pages.heading_note("the handlers in cluster/kafka/handlers")
    return "\n".join(("# Required rights\n", note, _INTRODUCTION, *table, ""))


def _rows(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    name = f"{_name_of(module)} ({int(module.KEY)})"
    if not module.RIGHTS:
        yield name, "none", ""
    for right in module.RIGHTS:
        yield name, _words(right), right.condition
        name = ""


def _words(right: Right) -> str:
    return f"{right.operation.name} on {right.resource.name}"


def _name_of(module: ModuleType) -> str:
    """Return the name of an API, which begins its handler's docstring."""
    return (inspect.getdoc(module) or "").split(" (", 1)[0]

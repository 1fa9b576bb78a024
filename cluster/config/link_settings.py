"""Settings of the connections between brokers: SASL of this broker as a client, and TLS of the metadata quorum."""

from dataclasses import dataclass

from cordwood.cluster.config.setting import setting
from cordwood.cluster.metadata.config_values import boolean, string

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """How this broker proves to others that it is one."""

    sasl_mechanism_inter_broker_protocol: str = setting(
        "SCRAM-SHA-256",
        string(*MECHANISMS),
        "The SASL mechanism by which this broker connects to others, if their listener is SASL_SSL or SASL_PLAINTEXT.",
    )
    sasl_username: str = setting(
        "",
        string(),
        "The user as which this broker connects to others on a listener with SASL. It needs CLUSTER_ACTION on the"
        " cluster, or is one of the super.users.",
        per_listener=True,
    )
    sasl_password: str = setting("", string(), "The password of sasl.username.", is_secret=True, per_listener=True)
    sasl_jaas_config: str = setting(
        "",
        string(),
        'User and password in the form of Kafka: MODULE required username="USER" password="PASSWORD"; as one text.',
        is_secret=True,
        per_listener=True,
    )
    controller_quorum_plaintext_allowed: bool = setting(
        False,
        boolean(),
        "Whether voters whose controller listener is SSL also accept and make connections without TLS. For the time in"
        " which the brokers of a cluster change to SSL one by one.",
    )

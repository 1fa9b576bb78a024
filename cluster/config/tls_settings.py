"""Settings of TLS. `listener.name.NAME.ssl.…` sets a value for one listener."""

from dataclasses import dataclass

from cordwood.cluster.config.setting import setting
from cordwood.cluster.metadata.config_values import string, words

STORE_TYPES = ("PEM", "PKCS12")
CLIENT_AUTH = ("none", "requested", "required")
TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """Certificates, keys, trusted authorities and the protocol of TLS."""

    ssl_keystore_type: str = setting(
        "PEM", string(*STORE_TYPES), "The format of ssl.keystore.location: PEM or PKCS12.", per_listener=True
    )
    ssl_keystore_location: str = setting(
        "",
        string(),
        "A file with this broker's private key and its certificate chain. A changed file is loaded within seconds,"
        " without a restart; a faulty one is refused, and the former certificate stays.",
        per_listener=True,
    )
    ssl_keystore_password: str = setting(
        "", string(), "The password of a PKCS12 keystore.", is_secret=True, per_listener=True
    )
    ssl_keystore_key: str = setting(
        "", string(), "The private key itself, as PEM, instead of a file.", is_secret=True, per_listener=True
    )
    ssl_keystore_certificate_chain: str = setting(
        "", string(), "The certificate chain itself, as PEM, beside ssl.keystore.key.", per_listener=True
    )
    ssl_key_password: str = setting(
        "",
        string(),
        "The password of the private key; empty if the key is not encrypted.",
        is_secret=True,
        per_listener=True,
    )
    ssl_truststore_type: str = setting(
        "PEM", string(*STORE_TYPES), "The format of ssl.truststore.location: PEM or PKCS12.", per_listener=True
    )
    ssl_truststore_location: str = setting(
        "",
        string(),
        "A file with the certificates of the authorities that sign the certificates of clients and other brokers.",
        per_listener=True,
    )
    ssl_truststore_password: str = setting(
        "", string(), "The password of a PKCS12 truststore.", is_secret=True, per_listener=True
    )
    ssl_truststore_certificates: str = setting(
        "", string(), "The certificates of the authorities themselves, as PEM, instead of a file.", per_listener=True
    )
    ssl_client_auth: str = setting(
        "none",
        string(*CLIENT_AUTH),
        "Whether clients of SSL listeners present a certificate: none, requested or required. On a SASL_SSL listener"
        " only the listener's own value counts (listener.name.NAME.ssl.client.auth).",
        per_listener=True,
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        (TLS_1_2, TLS_1_3), words(TLS_1_2, TLS_1_3), "The versions of TLS that are spoken.", per_listener=True
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (),
        words(),
        "The cipher suites, by their IANA or OpenSSL names; empty for OpenSSL's default.",
        per_listener=True,
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        string("https", ""),
        "https: a connection to another broker is made only if its certificate has the broker's advertised host."
        " Empty: any certificate of a trusted authority is accepted.",
        per_listener=True,
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        string(),
        "How the distinguished name of a client's certificate becomes a user: RULE:PATTERN/REPLACEMENT/ with an"
        " optional L or U for lower or upper case, or DEFAULT for the whole name, separated by commas. The first rule"
        " whose pattern matches the whole name counts. A client that no rule matches is refused.",
        per_listener=True,
    )
    http_security_protocol: str = setting(
        "PLAINTEXT",
        string("PLAINTEXT", "SSL"),
        "Whether the HTTP listener uses TLS. listener.name.http.ssl.… sets its own certificate.",
    )
    http_ssl_client_auth: str = setting(
        "none", string(*CLIENT_AUTH), "Whether clients of the HTTP listener present a certificate."
    )

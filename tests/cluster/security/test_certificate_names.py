"""Distinguished names as Java writes them, and ssl.principal.mapping.rules (KIP-371)."""

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from cordwood.cluster.security.certificate_rules import NoRuleMatches, PrincipalRules
from cordwood.cluster.security.distinguished_name import distinguished_name

Attribute = tuple[x509.ObjectIdentifier, str]
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(*names: Attribute | tuple[Attribute, ...]) -> bytes:
    rows = [row if isinstance(row[0], tuple) else (row,) for row in names]
    subject = x509.Name(
        [x509.RelativeDistinguishedName([x509.NameAttribute(*one) for one in row]) for row in rows]  # type: ignore[arg-type]
    )
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
    return (
        builder.not_valid_after(datetime(2036, 1, 1, tzinfo=UTC)).sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)
    )


CN, ORG, C, EMAIL, SERIAL, DC = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.DOMAIN_COMPONENT,
)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (((C, "US"), (ORG, "Acme"), (CN, "alice")), "CN=alice,O=Acme,C=US"),
        (((CN, "alice,O=admin"),), r"CN=alice\,O\=admin"),
        (((CN, ' a#"+;<>\\ '),), r"CN=\ a\#\"\+\;\<\>\\\ "),
        (((CN, "a\0b"),), r"CN=a\00b"),
        (((CN, "Müller"),), "CN=Müller"),
        (((CN, "a"), (EMAIL, "a@b")), "1.2.840.113549.1.9.1=#1603614062,CN=a"),
        (((CN, "a"), (SERIAL, "7")), "2.5.4.5=#130137,CN=a"),
        (((DC, "org"), (DC, "example")), "DC=example,DC=org"),
        ((((CN, "a"), (ORG, "b")),), "CN=a+O=b"),
        ((), ""),
        (((CN, "x" * 64), (ORG, "y" * 64), (C, "DE")), f"C=DE,O={'y' * 64},CN={'x' * 64}"),
    ],
)
def test_names_are_written_as_java_writes_them(names: tuple[Attribute, ...], text: str) -> None:
    assert distinguished_name(certificate(*names)) == text


NAME = "CN=kafka-user,OU=Dev,O=Acme,C=US"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("", NAME),
        ("DEFAULT", NAME),
        (r"RULE:^CN=(.*?),.*$/$1/", "kafka-user"),
        (r"RULE:^CN=(.*?),.*$/$1/U", "KAFKA-USER"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L", "kafka-user@dev"),
        (r"RULE:^CN=nobody$/x/, RULE:^CN=(\w+)-.*$/$1/ , DEFAULT", "kafka"),
        (r"RULE:^CN=nobody$/x/,DEFAULT", NAME),
        (r"RULE:.*C=(US|DE)/a\/b-$1/", "a/b-US"),
    ],
)
def test_the_first_rule_that_matches_counts(rules: str, user: str) -> None:
    principal = PrincipalRules(rules).principal(NAME)
    assert (principal.kind, principal.name) == ("User", user)


def test_a_rule_matches_the_whole_name_or_not_at_all() -> None:
    with pytest.raises(NoRuleMatches):
        PrincipalRules("RULE:CN=kafka-user/admin/").principal(NAME)


@pytest.mark.parametrize(
    "rules", ["RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/X", "default", "DEFAULT DEFAULT", "RULE:(/x/"]
)
def test_invalid_rules_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match="not valid"):
        PrincipalRules(rules)


def test_a_replacement_names_only_groups_that_exist() -> None:
    with pytest.raises(ValueError, match="refers to a group"):
        PrincipalRules("RULE:^CN=(.*)$/$2/")


def test_a_user_has_a_name() -> None:
    with pytest.raises(NoRuleMatches):
        PrincipalRules("RULE:.*//").principal(NAME)
    with pytest.raises(NoRuleMatches):
        PrincipalRules("DEFAULT").principal("")


def test_a_hostile_name_takes_no_time() -> None:
    with pytest.raises(NoRuleMatches):
        PrincipalRules(r"RULE:^(a+)+$/x/").principal("a" * 5000 + "b")

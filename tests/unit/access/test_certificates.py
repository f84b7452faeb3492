"""From a certificate to a user: Kafka's documented rules as a table, alternative names, and wrong rules."""

from __future__ import annotations

import pytest

from treecast.middleware.broker.access import CertificateUsers, Content, Identities, MappingError, User
from treecast.middleware.broker.access.authorizer import Operation, Resource, ResourceKind
from treecast.middleware.model.certificate_names import Subject
from treecast.middleware.model.principal import Principal, Proof

# The subject of the example in Kafka's documentation of ssl.principal.mapping.rules
SERVICE = (
    (("commonName", "serviceuser"),),
    (("organizationalUnitName", "ServiceUsers"),),
    (("organizationName", "Unknown"),),
    (("localityName", "Unknown"),),
    (("stateOrProvinceName", "Unknown"),),
    (("countryName", "Unknown"),),
)
ADMIN = (
    (("commonName", "adminUser"),),
    (("organizationalUnitName", "Admin"),),
    (("organizationName", "Unknown"),),
    (("localityName", "Unknown"),),
    (("stateOrProvinceName", "Unknown"),),
    (("countryName", "Unknown"),),
)
OTHER = ((("commonName", "host"),), (("organizationName", "shop"),))
DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "DEFAULT",
)


def subject(parts: Subject) -> dict[str, object]:
    return {"subject": tuple(reversed(parts))}


@pytest.mark.parametrize(
    ("parts", "user"),
    [(SERVICE, "serviceuser"), (ADMIN, "adminuser@admin"), (OTHER, "CN=host,O=shop")],
)
def test_kafkas_documented_rules(parts: Subject, user: str) -> None:
    assert CertificateUsers(DOCUMENTED).user_of(subject(parts)) == user


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        (("SAN:DNS:(.*)\\.shop/$1/",), "db"),
        (("SAN:URI:spiffe:\\/\\/shop\\/(.*)/$1/U",), "BILLING"),
        (("SAN:DNS:none/x/", "RULE:CN=.*/fixed/"), "fixed"),
        (("RULE:CN=(host)(x)?,.*/$1$2/",), "host"),
        (("SAN:email:.*/x/",), ""),
        ((), "CN=host,O=shop"),
    ],
)
def test_alternative_names(rules: tuple[str, ...], user: str) -> None:
    names = (("DNS", "db.shop"), ("URI", "spiffe://shop/billing"))
    assert CertificateUsers(rules).user_of(subject(OTHER) | {"subjectAltName": names}) == user


def test_a_certificate_without_a_name_is_nobodys() -> None:
    assert CertificateUsers().user_of({}) == ""


@pytest.mark.parametrize(
    "rule", ["", "default", "RULE:CN=(.*)", "RULE:CN=(/x/", "RULE:CN=.*/$1/", "RULE:a/b/X"]
)
def test_wrong_rules(rule: str) -> None:
    with pytest.raises(MappingError):
        CertificateUsers([rule])


def test_a_name_that_no_user_has_gets_nothing() -> None:
    identities = Identities(Content({"alice": User("alice", admin=True)}))
    topic = Resource(ResourceKind.TOPIC, "orders")
    for name, allowed in (("alice", True), ("bob", False)):
        decided = identities.decide(Principal(name, proof=Proof.CERTIFICATE), Operation.READ, topic)
        assert decided.allowed is allowed

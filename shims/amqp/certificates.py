"""The user that a client certificate names, for logins with EXTERNAL.

The rules are those of RabbitMQ's rabbitmq_auth_mechanism_ssl: the whole subject as RFC 4514 writes it, the
last part first (`CN=orders,O=shop`), or its common name.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class CertificateLogin(enum.Enum):
    """The part of a client certificate that is the user."""

    DISTINGUISHED_NAME = "distinguished_name"
    COMMON_NAME = "common_name"


# OpenSSL's names of attributes and those in a distinguished name. Others keep OpenSSL's.
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "pseudonym": "PSEUDONYM",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "surname": "SN",
    "title": "TITLE",
    "userId": "UID",
}
_SPECIAL: Final = frozenset('",;+<>\\')

Subject = tuple[tuple[tuple[str, str], ...], ...]


def user_of(certificate: Mapping[str, object], login: CertificateLogin) -> str:
    """Returns the user that a verified certificate names, or "" if it names none.

    `certificate` is as `ssl.SSLObject.getpeercert` returns it.
    """
    subject: Subject = certificate.get("subject", ())  # type: ignore[assignment]
    if login is CertificateLogin.COMMON_NAME:
        return ",".join([value for part in subject for name, value in part if name == "commonName"])
    return ",".join(["+".join([_spelt(name, value) for name, value in part]) for part in reversed(subject)])


def _spelt(name: str, value: str) -> str:
    return f"{_SHORT.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    found = "".join([_escaped_character(one) for one in value])
    if value[:1] in (" ", "#"):
        found = "\\" + found
    if len(value) > 1 and value.endswith(" "):
        found = found[:-1] + "\\ "
    return found


def _escaped_character(one: str) -> str:
    if one in _SPECIAL:
        return "\\" + one
    if " " <= one < "~":
        return one
    return "".join([f"\\{byte:02X}" for byte in one.encode()])

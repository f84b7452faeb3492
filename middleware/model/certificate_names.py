"""The names in an X.509 certificate, as `ssl.SSLObject.getpeercert` returns it.

The last part of a subject comes first: `CN=orders,O=shop`. So do RabbitMQ and Java spell it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
Certificate = Mapping[str, Any]  # the values' types differ by key, and ssl says no more of them


def distinguished_name(certificate: Certificate) -> str:
    """Returns the whole subject, "" if there is none."""
    return ",".join(
        ["+".join([_spelt(name, value) for name, value in part]) for part in reversed(_subject(certificate))]
    )


def common_name(certificate: Certificate) -> str:
    """Returns the common names of the subject, with commas in between."""
    pairs = [pair for part in _subject(certificate) for pair in part]
    return ",".join([value for name, value in pairs if name == "commonName"])


def alternative_names(certificate: Certificate) -> list[str]:
    """Returns the alternative names with their kinds, as `DNS:db.shop` or `URI:spiffe://shop/db`."""
    found: Sequence[tuple[str, str]] = certificate.get("subjectAltName", ())
    return [f"{kind}:{name}" for kind, name in found]


def _subject(certificate: Certificate) -> Subject:
    found: Subject = certificate.get("subject", ())
    return found


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

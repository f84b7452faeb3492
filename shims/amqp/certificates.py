"""Certificates: the user that a client's names, for logins with EXTERNAL, and when the server's own ends.

The rules are those of RabbitMQ's rabbitmq_auth_mechanism_ssl: the whole subject as RFC 4514 writes it, the
last part first (`CN=orders,O=shop`), or its common name.
"""

from __future__ import annotations

import enum
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from treecast.middleware.model.certificate_names import common_name, distinguished_name


class CertificateLogin(enum.Enum):
    """The part of a client certificate that is the user."""

    DISTINGUISHED_NAME = "distinguished_name"
    COMMON_NAME = "common_name"


def user_of(certificate: Mapping[str, object], login: CertificateLogin) -> str:
    """Returns the user that a verified certificate names, or "" if it names none.

    `certificate` is as `ssl.SSLObject.getpeercert` returns it.
    """
    by_common_name = login is CertificateLogin.COMMON_NAME
    return common_name(certificate) if by_common_name else distinguished_name(certificate)


_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_BEFORE_VALIDITY: Final = 3  # serial number, algorithm, issuer


def ends_at(pem: str) -> float:
    """Returns when the first certificate of a file ends, in seconds since the Unix epoch. Raises ValueError.

    Reads as much of DER (X.690) as lies before it in a certificate (RFC 5280, section 4.1).
    """
    begin = pem.find(ssl.PEM_HEADER)
    end = pem.find(ssl.PEM_FOOTER, begin)
    if begin < 0 or end < 0:
        raise ValueError("no certificate")
    der = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(ssl.PEM_FOOTER)])
    try:
        _, at, _ = _element(der, 0, _SEQUENCE)
        _, at, _ = _element(der, at, _SEQUENCE)
        if der[at] == _VERSION:
            _, _, at = _element(der, at)
        for _ in range(_BEFORE_VALIDITY):
            _, _, at = _element(der, at)
        _, at, _ = _element(der, at, _SEQUENCE)
        _, _, at = _element(der, at)
        kind, start, stop = _element(der, at)
    except IndexError:
        raise ValueError("a certificate that is cut short") from None
    text = der[start:stop].decode("ascii")
    if kind == _UTC_TIME:  # two digits of the year: from 1950 to 2049
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(der: bytes, at: int, wanted: int | None = None) -> tuple[int, int, int]:
    """Returns (tag, start, end) of the element at `at`. Raises ValueError if it is not of the wanted tag."""
    tag, length, start = der[at], der[at + 1], at + 2
    if wanted is not None and tag != wanted:
        raise ValueError(f"tag {tag} in place of {wanted}")
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(der[start : start + count])
        start += count
    return tag, start, start + length

"""The certificates of a secured cluster: its authority, its hosts, its administrator.

  authority       CN=treecast <cluster id>; signs hosts and administrators, and nothing below them
  host            CN=<name>    URI treecast://<cluster id>/host/<name>
  administrator   CN=<name>    URI treecast://<cluster id>/administrator/<name>

The URI says who the holder is; nothing else of a certificate counts between hosts. A host's certificate also
names it for its applications (its name, localhost, its addresses), and the coordinator's has a name of its
own, which clients of the coordinator ask for: so no other host can stand in for it.

Keys are of P-256. Functions take `now` in seconds since 1970. `cryptography` is loaded here, and this module
by secured hosts only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote, unquote

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError

from . import trust_calls

HOST: Final = trust_calls.HOST
ADMINISTRATOR: Final = trust_calls.ADMINISTRATOR
ROLES: Final = (HOST, ADMINISTRATOR)
HOST_NAME: Final = "host.treecast"  # a name in all certificates of hosts, for callers that look at the URI
COORDINATOR_NAME: Final = "coordinator.treecast"
AUTHORITY_DAYS: Final = 3653
HOST_DAYS: Final = 397
_SKEW: Final = timedelta(hours=1)  # by which clocks of hosts may be behind the authority's
_MOST_ADDRESSES: Final = 16
_LONGEST_NAME: Final = 255


class Identity(Struct, frozen=True):
    """The holder of a certificate. `serial` is unique under the authority; `until`: seconds since 1970."""

    cluster_id: str
    role: str
    name: str
    serial: int
    until: float = 0.0

    @property
    def is_host(self) -> bool:
        return self.role == HOST

    @property
    def words(self) -> str:
        return f"{self.role} {self.name}"


class Subject(Struct, frozen=True):
    """The content of a certificate. `addresses`: IP addresses and names at which applications reach it."""

    cluster_id: str
    role: str
    name: str
    addresses: tuple[str, ...] = ()
    coordinator: bool = False


def new_key() -> bytes:
    """Returns a fresh private key, PEM."""
    made = ec.generate_private_key(ec.SECP256R1())
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def make_authority(cluster_id: str, key: bytes, now: float) -> bytes:
    """Returns the authority's own certificate, PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"treecast {cluster_id}"[:64])])
    private = _private(key)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(name, name, private.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
    )
    return builder.sign(private, SHA256()).public_bytes(Encoding.PEM)


def request(key: bytes) -> bytes:
    """Returns a request for a certificate of this key, DER: it proves that the asker has the key. What the
    certificate says is the authority's decision.
    """
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(_private(key), SHA256()).public_bytes(Encoding.DER)


def digest_of_request(asked: bytes) -> str:
    """Returns a digest of the public key in a request. Raises INVALID_REQUEST for anything else."""
    public = _public(asked)
    return hashlib.sha256(public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)).hexdigest()


def sign(authority: bytes, authority_key: bytes, asked: bytes, subject: Subject, now: float) -> bytes:
    """Returns a certificate for the key of a request, PEM. Raises INVALID_REQUEST for a wrong request."""
    if subject.role == HOST and _is_taken(subject.name):
        raise _wrong(f"a host of a secured cluster cannot be called {subject.name!r}: choose another --name")
    public = _public(asked)
    issuer = x509.load_pem_x509_certificate(authority)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject.name[:64])])
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        _builder(name, issuer.subject, public, now, HOST_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(both, critical=False)
        .add_extension(x509.SubjectAlternativeName(_names(subject)), critical=False)
        .add_extension(_issuer_key(issuer), critical=False)
    )
    return builder.sign(_private(authority_key), SHA256()).public_bytes(Encoding.PEM)


def _is_taken(name: str) -> bool:
    """Whether a name is one by which hosts know the coordinator, each other or themselves."""
    return name.lower() == "localhost" or name.lower().endswith(".treecast")


def identity_of(certificate: bytes) -> Identity:
    """Returns who a certificate in PEM is of. Raises INVALID_REQUEST if it names nobody."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise _wrong(f"this is no certificate of a host: {error}") from error
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    identity = _read_uri(uris, found.serial_number, found.not_valid_after_utc.timestamp())
    if identity is None:
        raise _wrong("the certificate names no host and no administrator of a cluster")
    return identity


def identity_of_peer(found: Mapping[str, Any] | None) -> Identity | None:
    """Returns who the other end of a TLS connection is, from `SSLObject.getpeercert()`, which is empty if it
    gave no certificate or none was checked.
    """
    if not found:
        return None
    uris = [str(value) for kind, value in found.get("subjectAltName", ()) if kind == "URI"]
    return _read_uri(uris, int(str(found.get("serialNumber", "0")), 16))


def fingerprint(certificate: bytes) -> bytes:
    """Returns the SHA-256 of a certificate in PEM. Raises INVALID_REQUEST."""
    try:
        return x509.load_pem_x509_certificate(certificate).fingerprint(SHA256())
    except ValueError as error:
        raise _wrong(f"this is no certificate: {error}") from error


def end_of(certificate: bytes) -> float:
    """Returns when a certificate in PEM ends, in seconds since 1970. Raises INVALID_REQUEST."""
    try:
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()
    except ValueError as error:
        raise _wrong(f"this is no certificate: {error}") from error


def is_coordinator(leaf: bytes, authority: bytes, now: float) -> bool:
    """Whether a certificate (DER) is a coordinator's, signed by the authority (PEM), and valid."""
    try:
        found = x509.load_der_x509_certificate(leaf)
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    at = datetime.fromtimestamp(now, UTC)
    valid = found.not_valid_before_utc <= at <= found.not_valid_after_utc
    return valid and COORDINATOR_NAME in names.get_values_for_type(x509.DNSName)


def _private(key: bytes) -> ec.EllipticCurvePrivateKey:
    found = load_pem_private_key(key, None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise _wrong("the private key is not of an elliptic curve")
    return found


def _public(asked: bytes) -> ec.EllipticCurvePublicKey:
    try:
        found = x509.load_der_x509_csr(asked)
        public = found.public_key()
        sound = found.is_signature_valid and isinstance(public, ec.EllipticCurvePublicKey)
    except (ValueError, TypeError, x509.InvalidVersion, UnsupportedAlgorithm) as error:
        raise _wrong(f"this is no request for a certificate: {error}") from error
    if not sound or not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != "secp256r1":
        raise _wrong("the request for a certificate is not signed by its own key of P-256")
    return public


def _builder(
    name: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: float, days: int
) -> x509.CertificateBuilder:
    at = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _SKEW)
        .not_valid_after(at + timedelta(days=days))
    )


def _issuer_key(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _names(subject: Subject) -> list[x509.GeneralName]:
    uri = f"treecast://{quote(subject.cluster_id, safe='')}/{subject.role}/{quote(subject.name, safe='')}"
    found: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
    if subject.role == HOST:
        names = [HOST_NAME, subject.name, "localhost", *([COORDINATOR_NAME] if subject.coordinator else [])]
        found += [x509.DNSName(one) for one in dict.fromkeys(names)]
        found += [_address(one) for one in dict.fromkeys(("127.0.0.1", "::1", *subject.addresses))]
    return found


def _address(text: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(text))


def checked_addresses(given: Sequence[str]) -> tuple[str, ...]:
    """Returns the IP addresses that a host asks to have in its certificate. Raises INVALID_REQUEST.

    Names are not taken from the asker: it could ask for that of another host.
    """
    if len(given) > _MOST_ADDRESSES:
        raise _wrong(f"a certificate with {len(given)} addresses: at most {_MOST_ADDRESSES}")
    try:
        return tuple(str(ip_address(one)) for one in given)
    except ValueError as error:
        raise _wrong(f"the addresses of a certificate are numbers: {error}") from error


def _read_uri(uris: Sequence[str], serial: int, until: float = 0.0) -> Identity | None:
    for uri in uris:
        kind, _, rest = uri.partition("://")
        parts = rest.split("/")
        if kind == "treecast" and len(parts) == 3 and parts[1] in ROLES and len(parts[2]) <= _LONGEST_NAME:
            return Identity(unquote(parts[0]), parts[1], unquote(parts[2]), serial, until)
    return None


def _wrong(detail: str) -> TreecastError:
    return TreecastError(Fault.INVALID_REQUEST, detail)

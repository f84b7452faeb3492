"""Passwords of the users in the store of identities, for the checks that all faces share (`log_ins`)."""

from __future__ import annotations

from typing import Final

from treecast.middleware.broker.access import Identities
from treecast.middleware.model.scram import SHA256, SHA512

from .passwords import Secret

_MECHANISMS: Final = (SHA256, SHA512)


def secret_of(identities: Identities, name: str, address: str = "") -> Secret:
    """Returns what is stored of a user's password. An unknown user costs as much, and nothing fits; nor does
    it for one who may not come from `address` ("": this machine).
    """
    user = identities.content.users.get(name) if identities.admits(name, address) else None
    known = user.verifiers if user is not None else {}
    mechanism = next((one for one in _MECHANISMS if one in known), SHA256)
    found = identities.verifier(mechanism, name, address)
    stored = found.text.encode() if mechanism in known else b""
    return Secret(found.fits, stored)

"""Write permission: election ids, one primary for each role (the specification's section 5). Pure.

A client is primary if its election id is at least the highest ever seen for its role. When the primary
leaves, there is none until such a client arrives; backups are notified, and may bid again.
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from .errors import Code, P4RuntimeError

MOST_CLIENTS = 64


class Notice(Struct, frozen=True):
    """A notification for one client. `code` is OK for the primary, ALREADY_EXISTS for a backup, NOT_FOUND
    without a primary.

    `election_id` is the highest ever seen, None if there never was a primary.
    """

    client: Hashable
    role: str
    code: Code
    election_id: int | None


class _Role:
    def __init__(self) -> None:
        self.clients: dict[Hashable, int | None] = {}
        self.primary: Hashable | None = None
        self.highest: int | None = None


class Arbitration:
    """The clients of one device. A client is anything that can be a key; the server uses its streams."""

    def __init__(self, most_clients: int = MOST_CLIENTS) -> None:
        self._roles: dict[str, _Role] = {}
        self._role_of: dict[Hashable, str] = {}
        self._most = most_clients

    def update(self, client: Hashable, role: str, election_id: int | None) -> list[Notice]:
        """Handles a client's MasterArbitrationUpdate. Raises P4RuntimeError, which ends its stream."""
        known = self._role_of.get(client)
        if known is not None and known != role:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, f"this stream has the role {known!r} already")
        state = self._roles.get(role) or _Role()
        if election_id is not None:
            for other, used in state.clients.items():
                if other != client and used == election_id:
                    raise P4RuntimeError(Code.INVALID_ARGUMENT, f"election id {election_id} exists already")
        if known is None and len(self._role_of) >= self._most:
            raise P4RuntimeError(Code.RESOURCE_EXHAUSTED, f"there are {self._most} clients already")
        self._roles[role] = state
        self._role_of[client] = role
        state.clients[client] = election_id
        return self._elect(client, role, state, election_id)

    def _elect(self, client: Hashable, role: str, state: _Role, election_id: int | None) -> list[Notice]:
        was_primary = state.primary == client
        if election_id is not None and (state.highest is None or election_id >= state.highest):
            state.primary, state.highest = client, election_id
            return self._notices(role, state)
        if was_primary:
            state.primary = None
            return self._notices(role, state)
        return [one for one in self._notices(role, state) if one.client == client]

    def leave(self, client: Hashable) -> list[Notice]:
        """Handles the end of a stream. The highest election id is remembered."""
        role = self._role_of.pop(client, None)
        if role is None:
            return []
        state = self._roles[role]
        del state.clients[client]
        if state.primary != client:
            return []
        state.primary = None
        return self._notices(role, state)

    def _notices(self, role: str, state: _Role) -> list[Notice]:
        backup = Code.NOT_FOUND if state.primary is None else Code.ALREADY_EXISTS
        return [
            Notice(client, role, Code.OK if client == state.primary else backup, state.highest)
            for client in state.clients
        ]

    def may_write(self, role: str, election_id: int | None) -> bool:
        """Returns whether a write with this election id comes from the role's primary."""
        state = self._roles.get(role)
        if state is None or state.primary is None or election_id is None:
            return False
        return state.clients[state.primary] == election_id

    def is_primary(self, client: Hashable) -> bool:
        role = self._role_of.get(client)
        return role is not None and self._roles[role].primary == client

    def role_of(self, client: Hashable) -> str:
        """Returns the role that a client has asked for."""
        return self._role_of.get(client, "")

    def knows_role(self, role: str) -> bool:
        """Returns whether a client of this role was ever here; the role without a name always is."""
        return not role or role in self._roles

    def primaries(self) -> list[Hashable]:
        """Returns the primary of each role that has one; all of them get the switch's messages."""
        return [state.primary for state in self._roles.values() if state.primary is not None]

    def check_invariants(self) -> None:
        """For tests: checks that every role has at most one primary, which is connected and has the highest
        id.
        """
        for state in self._roles.values():
            ids = [one for one in state.clients.values() if one is not None]
            assert len(ids) == len(set(ids))
            assert all(state.highest is not None and one <= state.highest for one in ids)
            if state.primary is not None:
                assert state.clients[state.primary] == state.highest

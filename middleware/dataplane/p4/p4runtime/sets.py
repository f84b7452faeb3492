"""ValueSetEntry (9.6) and DigestEntry (9.8)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from finsy.proto import p4r

from treecast.middleware.dataplane.p4.runtime import DigestConfig, DigestList, ValueSetMember

from .data import to_data
from .errors import Code, P4RuntimeError, invalid, not_found
from .matches import matches_from, matches_to
from .schema import Schema
from .store import DELETE, INSERT, Store, Undo, only_modify

_NANOSECONDS = 1_000_000_000


class ValueSetStore(Store[p4r.ValueSetEntry]):
    """Parsers' value sets; a write replaces all members."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.ValueSetEntry, now: float) -> Undo:
        only_modify(kind, "a value set")
        found = self.schema.value_sets.find(message.value_set_id)
        members: list[ValueSetMember] = []
        for one in message.members:
            member = ValueSetMember(matches_from(found.fields, one.match, found.name))
            if member in members:
                raise P4RuntimeError(Code.ALREADY_EXISTS, f"{found.name}: a member comes twice")
            members.append(member)
        old = self.control.value_set(found.name).members()
        self.control.value_set(found.name).set(members)
        return partial(self.control.value_set(found.name).set, old)

    def read(self, wanted: p4r.ValueSetEntry, now: float) -> Iterator[p4r.Entity]:
        for found in self.schema.value_sets.chosen(wanted.value_set_id):
            message = p4r.ValueSetEntry(value_set_id=found.id)
            for member in self.control.value_set(found.name).members():
                message.members.add(match=matches_to(found.fields, member.matches))
            yield p4r.Entity(value_set_entry=message)


class DigestStore(Store[p4r.DigestEntry]):
    """When digests are sent."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.DigestEntry, now: float) -> Undo:
        digest = self.schema.digests.find(message.digest_id)
        if kind == INSERT:
            self.control.digest(digest.name).insert(_config_from(message.config, digest.name))
            return partial(self.control.digest(digest.name).delete)
        old = self.control.digest_configs().get(digest.name)
        if old is None:
            raise not_found(f"digests of {digest.name} are not enabled")
        if kind == DELETE:
            self.control.digest(digest.name).delete()
            return partial(self.control.digest(digest.name).insert, old)
        self.control.digest(digest.name).modify(_config_from(message.config, digest.name))
        return partial(self.control.digest(digest.name).modify, old)

    def read(self, wanted: p4r.DigestEntry, now: float) -> Iterator[p4r.Entity]:
        configs = self.control.digest_configs()
        for digest in self.schema.digests.chosen(wanted.digest_id):
            config = configs.get(digest.name)
            if config is not None:
                yield p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=digest.id, config=_config_to(config)))


def _config_from(message: p4r.DigestEntry.Config, what: str) -> DigestConfig:
    if min(message.max_timeout_ns, message.max_list_size, message.ack_timeout_ns) < 0:
        raise invalid(f"digests of {what}: a time or size is negative")
    return DigestConfig(
        message.max_timeout_ns / _NANOSECONDS, message.max_list_size, message.ack_timeout_ns / _NANOSECONDS
    )


def _config_to(config: DigestConfig) -> p4r.DigestEntry.Config:
    return p4r.DigestEntry.Config(
        max_timeout_ns=round(config.max_timeout * _NANOSECONDS),
        max_list_size=config.max_list_size,
        ack_timeout_ns=round(config.ack_timeout * _NANOSECONDS),
    )


def digest_list_to(schema: Schema, found: DigestList, timestamp: int) -> p4r.DigestList:
    """Returns a list that is due; `timestamp` in nanoseconds since 1970."""
    digest = schema.digests.names[found.name]
    types = schema.info.type_info
    values = [to_data(digest.type, types, iter(numbers)) for numbers in found.values]
    return p4r.DigestList(digest_id=digest.id, list_id=found.list_id, data=values, timestamp=timestamp)

from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EntryKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENTRY_KIND_UNSPECIFIED: _ClassVar[EntryKind]
    ENTRY_KIND_HOST: _ClassVar[EntryKind]
    ENTRY_KIND_TOPIC: _ClassVar[EntryKind]
    ENTRY_KIND_HOME: _ClassVar[EntryKind]
    ENTRY_KIND_STATE: _ClassVar[EntryKind]
    ENTRY_KIND_INTEREST: _ClassVar[EntryKind]
    ENTRY_KIND_COUNTER: _ClassVar[EntryKind]
    ENTRY_KIND_DEFINITION: _ClassVar[EntryKind]

class HostPresence(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOST_PRESENCE_UNSPECIFIED: _ClassVar[HostPresence]
    HOST_PRESENCE_ATTACHED: _ClassVar[HostPresence]
    HOST_PRESENCE_AWAY: _ClassVar[HostPresence]
    HOST_PRESENCE_DETACHED: _ClassVar[HostPresence]

class HomeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOME_KIND_UNSPECIFIED: _ClassVar[HomeKind]
    HOME_KIND_GROUP: _ClassVar[HomeKind]
    HOME_KIND_TRANSACTION: _ClassVar[HomeKind]
    HOME_KIND_REPLICAS: _ClassVar[HomeKind]
    HOME_KIND_SHARE: _ClassVar[HomeKind]
ENTRY_KIND_UNSPECIFIED: EntryKind
ENTRY_KIND_HOST: EntryKind
ENTRY_KIND_TOPIC: EntryKind
ENTRY_KIND_HOME: EntryKind
ENTRY_KIND_STATE: EntryKind
ENTRY_KIND_INTEREST: EntryKind
ENTRY_KIND_COUNTER: EntryKind
ENTRY_KIND_DEFINITION: EntryKind
HOST_PRESENCE_UNSPECIFIED: HostPresence
HOST_PRESENCE_ATTACHED: HostPresence
HOST_PRESENCE_AWAY: HostPresence
HOST_PRESENCE_DETACHED: HostPresence
HOME_KIND_UNSPECIFIED: HomeKind
HOME_KIND_GROUP: HomeKind
HOME_KIND_TRANSACTION: HomeKind
HOME_KIND_REPLICAS: HomeKind
HOME_KIND_SHARE: HomeKind

class HostEntry(_message.Message):
    __slots__ = ("host_id", "name", "instance", "address", "version", "incarnation", "presence", "run", "leads_nothing", "zone", "run_id", "lost_run", "mtu")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    LEADS_NOTHING_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LOST_RUN_FIELD_NUMBER: _ClassVar[int]
    MTU_FIELD_NUMBER: _ClassVar[int]
    host_id: int
    name: str
    instance: str
    address: str
    version: str
    incarnation: int
    presence: HostPresence
    run: int
    leads_nothing: bool
    zone: str
    run_id: str
    lost_run: int
    mtu: int
    def __init__(self, host_id: _Optional[int] = ..., name: _Optional[str] = ..., instance: _Optional[str] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., incarnation: _Optional[int] = ..., presence: _Optional[_Union[HostPresence, str]] = ..., run: _Optional[int] = ..., leads_nothing: _Optional[bool] = ..., zone: _Optional[str] = ..., run_id: _Optional[str] = ..., lost_run: _Optional[int] = ..., mtu: _Optional[int] = ...) -> None: ...

class PartitionEntry(_message.Message):
    __slots__ = ("leader", "leader_epoch", "waits", "lost")
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    leader: int
    leader_epoch: int
    waits: bool
    lost: _containers.RepeatedCompositeFieldContainer[LostRange]
    def __init__(self, leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., waits: _Optional[bool] = ..., lost: _Optional[_Iterable[_Union[LostRange, _Mapping]]] = ...) -> None: ...

class LostRange(_message.Message):
    __slots__ = ("first", "heard", "leader_epoch", "host", "time_ms", "unknown", "accepted")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    first: int
    heard: int
    leader_epoch: int
    host: int
    time_ms: int
    unknown: bool
    accepted: bool
    def __init__(self, first: _Optional[int] = ..., heard: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., host: _Optional[int] = ..., time_ms: _Optional[int] = ..., unknown: _Optional[bool] = ..., accepted: _Optional[bool] = ...) -> None: ...

class TopicEntry(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionEntry]
    config: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[PartitionEntry, _Mapping]]] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class HomeEntry(_message.Message):
    __slots__ = ("kind", "id", "host_id", "epoch")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    kind: HomeKind
    id: str
    host_id: int
    epoch: int
    def __init__(self, kind: _Optional[_Union[HomeKind, str]] = ..., id: _Optional[str] = ..., host_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class StateEntry(_message.Message):
    __slots__ = ("state_id", "levels", "holders")
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    state_id: int
    levels: _containers.RepeatedScalarFieldContainer[str]
    holders: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, state_id: _Optional[int] = ..., levels: _Optional[_Iterable[str]] = ..., holders: _Optional[_Iterable[int]] = ...) -> None: ...

class InterestEntry(_message.Message):
    __slots__ = ("host_id", "incarnation", "version", "patterns")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    host_id: int
    incarnation: int
    version: int
    patterns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, host_id: _Optional[int] = ..., incarnation: _Optional[int] = ..., version: _Optional[int] = ..., patterns: _Optional[_Iterable[str]] = ...) -> None: ...

class CounterEntry(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class DefinitionEntry(_message.Message):
    __slots__ = ("key", "host_id", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    host_id: int
    value: bytes
    def __init__(self, key: _Optional[str] = ..., host_id: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class EntryChange(_message.Message):
    __slots__ = ("kind", "key", "host", "topic", "home", "state", "interest", "counter", "definition")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INTEREST_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    kind: EntryKind
    key: str
    host: HostEntry
    topic: TopicEntry
    home: HomeEntry
    state: StateEntry
    interest: InterestEntry
    counter: CounterEntry
    definition: DefinitionEntry
    def __init__(self, kind: _Optional[_Union[EntryKind, str]] = ..., key: _Optional[str] = ..., host: _Optional[_Union[HostEntry, _Mapping]] = ..., topic: _Optional[_Union[TopicEntry, _Mapping]] = ..., home: _Optional[_Union[HomeEntry, _Mapping]] = ..., state: _Optional[_Union[StateEntry, _Mapping]] = ..., interest: _Optional[_Union[InterestEntry, _Mapping]] = ..., counter: _Optional[_Union[CounterEntry, _Mapping]] = ..., definition: _Optional[_Union[DefinitionEntry, _Mapping]] = ...) -> None: ...

class Heard(_message.Message):
    __slots__ = ("history", "revision", "epoch", "highest", "name")
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    history: str
    revision: int
    epoch: int
    highest: int
    name: str
    def __init__(self, history: _Optional[str] = ..., revision: _Optional[int] = ..., epoch: _Optional[int] = ..., highest: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class HostSession(_message.Message):
    __slots__ = ("host_id", "incarnation", "heard")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    host_id: int
    incarnation: int
    heard: Heard
    def __init__(self, host_id: _Optional[int] = ..., incarnation: _Optional[int] = ..., heard: _Optional[_Union[Heard, _Mapping]] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("name", "instance", "address", "version", "run", "clock_run", "leads_nothing", "zone", "runs", "mtu", "heard")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    CLOCK_RUN_FIELD_NUMBER: _ClassVar[int]
    LEADS_NOTHING_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    MTU_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    name: str
    instance: str
    address: str
    version: str
    run: int
    clock_run: int
    leads_nothing: bool
    zone: str
    runs: _containers.RepeatedCompositeFieldContainer[RunMark]
    mtu: int
    heard: Heard
    def __init__(self, name: _Optional[str] = ..., instance: _Optional[str] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., run: _Optional[int] = ..., clock_run: _Optional[int] = ..., leads_nothing: _Optional[bool] = ..., zone: _Optional[str] = ..., runs: _Optional[_Iterable[_Union[RunMark, _Mapping]]] = ..., mtu: _Optional[int] = ..., heard: _Optional[_Union[Heard, _Mapping]] = ...) -> None: ...

class RunMark(_message.Message):
    __slots__ = ("id", "stamp")
    ID_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    id: str
    stamp: int
    def __init__(self, id: _Optional[str] = ..., stamp: _Optional[int] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("session", "cluster_id", "lease_seconds", "run", "older", "view_wanted", "epoch")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    OLDER_FIELD_NUMBER: _ClassVar[int]
    VIEW_WANTED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    cluster_id: str
    lease_seconds: float
    run: int
    older: bool
    view_wanted: bool
    epoch: int
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., cluster_id: _Optional[str] = ..., lease_seconds: _Optional[float] = ..., run: _Optional[int] = ..., older: _Optional[bool] = ..., view_wanted: _Optional[bool] = ..., epoch: _Optional[int] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("session", "stamp")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    stamp: int
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., stamp: _Optional[int] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("lease_seconds", "view_wanted", "epoch")
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VIEW_WANTED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    lease_seconds: float
    view_wanted: bool
    epoch: int
    def __init__(self, lease_seconds: _Optional[float] = ..., view_wanted: _Optional[bool] = ..., epoch: _Optional[int] = ...) -> None: ...

class DetachRequest(_message.Message):
    __slots__ = ("session", "stamp")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    stamp: int
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., stamp: _Optional[int] = ...) -> None: ...

class DetachResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("history", "revision", "session")
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    history: str
    revision: int
    session: HostSession
    def __init__(self, history: _Optional[str] = ..., revision: _Optional[int] = ..., session: _Optional[_Union[HostSession, _Mapping]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("history", "revision", "snapshot", "more", "changes", "epoch")
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    history: str
    revision: int
    snapshot: bool
    more: bool
    changes: _containers.RepeatedCompositeFieldContainer[EntryChange]
    epoch: int
    def __init__(self, history: _Optional[str] = ..., revision: _Optional[int] = ..., snapshot: _Optional[bool] = ..., more: _Optional[bool] = ..., changes: _Optional[_Iterable[_Union[EntryChange, _Mapping]]] = ..., epoch: _Optional[int] = ...) -> None: ...

class HandInRequest(_message.Message):
    __slots__ = ("name", "heard", "first", "changes", "more")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    name: str
    heard: Heard
    first: int
    changes: _containers.RepeatedCompositeFieldContainer[EntryChange]
    more: bool
    def __init__(self, name: _Optional[str] = ..., heard: _Optional[_Union[Heard, _Mapping]] = ..., first: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[EntryChange, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class HandInResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class CreateTopicEntryRequest(_message.Message):
    __slots__ = ("name", "partitions", "config", "pinned", "validate_only", "topic_id")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    config: _containers.ScalarMap[str, str]
    pinned: _containers.RepeatedScalarFieldContainer[str]
    validate_only: bool
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ..., pinned: _Optional[_Iterable[str]] = ..., validate_only: _Optional[bool] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class DeleteTopicEntryRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AlterTopicEntryRequest(_message.Message):
    __slots__ = ("name", "set", "unset", "validate_only")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    set: _containers.ScalarMap[str, str]
    unset: _containers.RepeatedScalarFieldContainer[str]
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., unset: _Optional[_Iterable[str]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class CreatePartitionEntriesRequest(_message.Message):
    __slots__ = ("name", "total", "pinned", "validate_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    total: int
    pinned: _containers.RepeatedScalarFieldContainer[str]
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., total: _Optional[int] = ..., pinned: _Optional[_Iterable[str]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class TopicEntryResponse(_message.Message):
    __slots__ = ("topic", "revision", "epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: TopicEntry
    revision: int
    epoch: int
    def __init__(self, topic: _Optional[_Union[TopicEntry, _Mapping]] = ..., revision: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class TakeLeadRequest(_message.Message):
    __slots__ = ("session", "topic_id", "partition", "known_epoch", "leader_epoch", "promoted", "lost")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROMOTED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    topic_id: bytes
    partition: int
    known_epoch: int
    leader_epoch: int
    promoted: bool
    lost: LostRange
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., known_epoch: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., promoted: _Optional[bool] = ..., lost: _Optional[_Union[LostRange, _Mapping]] = ...) -> None: ...

class GiveUpRequest(_message.Message):
    __slots__ = ("session", "topic_id", "partitions")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class AcceptLossesRequest(_message.Message):
    __slots__ = ("session", "topic_id", "partition")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    topic_id: bytes
    partition: int
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class PutEndsRequest(_message.Message):
    __slots__ = ("session", "ends")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    ends: _containers.RepeatedCompositeFieldContainer[PartitionEnd]
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., ends: _Optional[_Iterable[_Union[PartitionEnd, _Mapping]]] = ...) -> None: ...

class PartitionEnd(_message.Message):
    __slots__ = ("topic_id", "partition", "leader_epoch", "end", "quiet")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    leader_epoch: int
    end: int
    quiet: bool
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., end: _Optional[int] = ..., quiet: _Optional[bool] = ...) -> None: ...

class PutEndsResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class GetEndsRequest(_message.Message):
    __slots__ = ("topic_id", "topic_ids")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    topic_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic_id: _Optional[bytes] = ..., topic_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GetEndsResponse(_message.Message):
    __slots__ = ("ends", "epoch")
    ENDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ends: _containers.RepeatedCompositeFieldContainer[PartitionEnd]
    epoch: int
    def __init__(self, ends: _Optional[_Iterable[_Union[PartitionEnd, _Mapping]]] = ..., epoch: _Optional[int] = ...) -> None: ...

class HomeRequest(_message.Message):
    __slots__ = ("session", "id")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    id: str
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., id: _Optional[str] = ...) -> None: ...

class HomeResponse(_message.Message):
    __slots__ = ("home", "epoch")
    HOME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    home: HomeEntry
    epoch: int
    def __init__(self, home: _Optional[_Union[HomeEntry, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class HomeItem(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class HomeWrite(_message.Message):
    __slots__ = ("kind", "id", "epoch", "items", "forget")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    kind: HomeKind
    id: str
    epoch: int
    items: _containers.RepeatedCompositeFieldContainer[HomeItem]
    forget: bool
    def __init__(self, kind: _Optional[_Union[HomeKind, str]] = ..., id: _Optional[str] = ..., epoch: _Optional[int] = ..., items: _Optional[_Iterable[_Union[HomeItem, _Mapping]]] = ..., forget: _Optional[bool] = ...) -> None: ...

class PutHomeStateRequest(_message.Message):
    __slots__ = ("session", "writes")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    writes: _containers.RepeatedCompositeFieldContainer[HomeWrite]
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[HomeWrite, _Mapping]]] = ...) -> None: ...

class HomeRefusal(_message.Message):
    __slots__ = ("index", "fault", "detail")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    index: int
    fault: str
    detail: str
    def __init__(self, index: _Optional[int] = ..., fault: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class PutHomeStateResponse(_message.Message):
    __slots__ = ("refused", "epoch")
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[HomeRefusal]
    epoch: int
    def __init__(self, refused: _Optional[_Iterable[_Union[HomeRefusal, _Mapping]]] = ..., epoch: _Optional[int] = ...) -> None: ...

class GetHomeStateRequest(_message.Message):
    __slots__ = ("session", "kind", "id", "epoch", "after")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    kind: HomeKind
    id: str
    epoch: int
    after: bytes
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., kind: _Optional[_Union[HomeKind, str]] = ..., id: _Optional[str] = ..., epoch: _Optional[int] = ..., after: _Optional[bytes] = ...) -> None: ...

class GetHomeStateResponse(_message.Message):
    __slots__ = ("items", "more", "epoch")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[HomeItem]
    more: bool
    epoch: int
    def __init__(self, items: _Optional[_Iterable[_Union[HomeItem, _Mapping]]] = ..., more: _Optional[bool] = ..., epoch: _Optional[int] = ...) -> None: ...

class ProducerIdsRequest(_message.Message):
    __slots__ = ("session", "count", "at_least")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    count: int
    at_least: int
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., count: _Optional[int] = ..., at_least: _Optional[int] = ...) -> None: ...

class ProducerIdsResponse(_message.Message):
    __slots__ = ("first", "count", "epoch")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    epoch: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class AllotStateRequest(_message.Message):
    __slots__ = ("session", "levels")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    levels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., levels: _Optional[_Iterable[str]] = ...) -> None: ...

class AllotStateResponse(_message.Message):
    __slots__ = ("state", "epoch")
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    state: StateEntry
    epoch: int
    def __init__(self, state: _Optional[_Union[StateEntry, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class ReleaseStateRequest(_message.Message):
    __slots__ = ("session", "state_id", "force")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    state_id: int
    force: bool
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., state_id: _Optional[int] = ..., force: _Optional[bool] = ...) -> None: ...

class ReleaseStateResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class PutInterestRequest(_message.Message):
    __slots__ = ("session", "version", "patterns")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    version: int
    patterns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., version: _Optional[int] = ..., patterns: _Optional[_Iterable[str]] = ...) -> None: ...

class PutInterestResponse(_message.Message):
    __slots__ = ("version", "epoch")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    version: int
    epoch: int
    def __init__(self, version: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class DefinitionWrite(_message.Message):
    __slots__ = ("key", "value", "replace")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    replace: bool
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., replace: _Optional[bool] = ...) -> None: ...

class PutDefinitionsRequest(_message.Message):
    __slots__ = ("session", "writes")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    writes: _containers.RepeatedCompositeFieldContainer[DefinitionWrite]
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., writes: _Optional[_Iterable[_Union[DefinitionWrite, _Mapping]]] = ...) -> None: ...

class PutDefinitionsResponse(_message.Message):
    __slots__ = ("revision", "epoch")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    revision: int
    epoch: int
    def __init__(self, revision: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class ClusterEvent(_message.Message):
    __slots__ = ("number", "time_ms", "kind", "host", "face", "who", "what")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    FACE_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    number: int
    time_ms: int
    kind: str
    host: str
    face: str
    who: str
    what: str
    def __init__(self, number: _Optional[int] = ..., time_ms: _Optional[int] = ..., kind: _Optional[str] = ..., host: _Optional[str] = ..., face: _Optional[str] = ..., who: _Optional[str] = ..., what: _Optional[str] = ...) -> None: ...

class PutEventsRequest(_message.Message):
    __slots__ = ("session", "events", "missed")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    session: HostSession
    events: _containers.RepeatedCompositeFieldContainer[ClusterEvent]
    missed: int
    def __init__(self, session: _Optional[_Union[HostSession, _Mapping]] = ..., events: _Optional[_Iterable[_Union[ClusterEvent, _Mapping]]] = ..., missed: _Optional[int] = ...) -> None: ...

class PutEventsResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class GetEventsRequest(_message.Message):
    __slots__ = ("after", "last")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    after: int
    last: int
    def __init__(self, after: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class GetEventsResponse(_message.Message):
    __slots__ = ("events", "more", "epoch")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[ClusterEvent]
    more: bool
    epoch: int
    def __init__(self, events: _Optional[_Iterable[_Union[ClusterEvent, _Mapping]]] = ..., more: _Optional[bool] = ..., epoch: _Optional[int] = ...) -> None: ...

class CoordinatorStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CoordinatorStatusResponse(_message.Message):
    __slots__ = ("cluster_id", "version", "revision", "hosts", "watchers", "refused_writes", "problems", "pid", "uptime_seconds", "data_dir", "fsync", "resident_bytes", "cpu_seconds", "open_files", "open_files_limit", "disk_free_bytes", "disk_bytes", "store", "role", "leader", "takeovers", "store_losses", "missing", "epoch")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_WRITES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DATA_DIR_FIELD_NUMBER: _ClassVar[int]
    FSYNC_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TAKEOVERS_FIELD_NUMBER: _ClassVar[int]
    STORE_LOSSES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    version: str
    revision: int
    hosts: int
    watchers: int
    refused_writes: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    pid: int
    uptime_seconds: float
    data_dir: str
    fsync: str
    resident_bytes: int
    cpu_seconds: float
    open_files: int
    open_files_limit: int
    disk_free_bytes: int
    disk_bytes: int
    store: str
    role: str
    leader: str
    takeovers: int
    store_losses: int
    missing: _containers.RepeatedScalarFieldContainer[str]
    epoch: int
    def __init__(self, cluster_id: _Optional[str] = ..., version: _Optional[str] = ..., revision: _Optional[int] = ..., hosts: _Optional[int] = ..., watchers: _Optional[int] = ..., refused_writes: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ..., pid: _Optional[int] = ..., uptime_seconds: _Optional[float] = ..., data_dir: _Optional[str] = ..., fsync: _Optional[str] = ..., resident_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., open_files: _Optional[int] = ..., open_files_limit: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., store: _Optional[str] = ..., role: _Optional[str] = ..., leader: _Optional[str] = ..., takeovers: _Optional[int] = ..., store_losses: _Optional[int] = ..., missing: _Optional[_Iterable[str]] = ..., epoch: _Optional[int] = ...) -> None: ...

"""The settings of a daemon: one table, the source of flags, variables, the TOML file and the manual.

A field of `Settings` is a key of the file. Its flag is `--` and the name with hyphens, its variable
`TREECAST_` and the name in capitals.
"""

from __future__ import annotations

import enum
from functools import cache
from typing import Annotated, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields

from treecast.middleware.api.discovery import DEFAULT_ADDRESSES, OFF
from treecast.middleware.model.carriers import AUTO
from treecast.middleware.model.policies import Protection, QueuePolicy
from treecast.middleware.model.request_memory import MOST
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.shims.amqp.certificates import CertificateLogin

PREFIX = "TREECAST_"
INT31 = 2**31 - 1
STORE = "coordinator.db"  # in the data directory, if the coordinator is embedded


class LogLevel(enum.Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.Enum):
    """The format of the log. AUTO is CONSOLE on a terminal and JSON elsewhere."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class TelemetryNames(enum.Enum):
    """Whether telemetry is written, and the names of streams in it."""

    OFF = "off"
    PLAIN = "plain"
    HASHED = "hashed"


def _address(what: str) -> Meta:
    return Meta(description=what, extra={"placeholder": "HOST:PORT|off"})


def _milliseconds(what: str, low: int = 0) -> Meta:
    return Meta(description=what, ge=low, le=2**53, extra={"placeholder": "MS"})


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings for operators. Times are in ms, sizes in bytes."""

    name: Annotated[str, Meta(description="this host's name in the cluster; default: the machine's")] = ""
    data: Annotated[
        str,
        Meta(
            description="the data directory; default: systemd's state directory, else /var/lib/treecast for"
            " root, else ~/.local/state/treecast",
            extra={"placeholder": "DIR"},
        ),
    ] = ""
    runtime_dir: Annotated[
        str,
        Meta(
            description="the directory of the Unix sockets; default: /run/treecast, else"
            " $XDG_RUNTIME_DIR/treecast",
            extra={"placeholder": "DIR"},
        ),
    ] = ""
    join: Annotated[
        str,
        Meta(
            description="the control address of a daemon or coordinator whose cluster to join; several,"
            " separated by commas, if coordinators share a store; stored in the data directory",
            extra={"placeholder": "HOST:PORT,..."},
        ),
    ] = ""
    join_token: Annotated[
        str,
        Meta(
            description="the content of `join-token` in the data directory of the first daemon, or of the"
            " coordinator: the token itself or a file with it; stored in the data directory",
            extra={"placeholder": "TOKEN|@FILE"},
        ),
    ] = ""
    store: Annotated[
        str,
        Meta(
            description="of `treecast coordinator`: a PostgreSQL database that several coordinators share,"
            " of which one leads and the others wait, as in postgresql://USER@HOST/DATABASE, or a file with"
            " that; default: a file of its own in the data directory",
            extra={"placeholder": "URL|@FILE"},
        ),
    ] = ""

    kafka: Annotated[str, _address("the Kafka face")] = DEFAULT_ADDRESSES["kafka"]
    amqp: Annotated[str, _address("the AMQP face, 0-9-1 as RabbitMQ's clients speak it")] = DEFAULT_ADDRESSES[
        "amqp"
    ]
    mqtt: Annotated[str, _address("the MQTT face, 3.1.1 and 5.0, with WebSocket")] = DEFAULT_ADDRESSES["mqtt"]
    stare: Annotated[str, _address("the STARE face")] = DEFAULT_ADDRESSES["stare"]
    admin: Annotated[str, _address("HTTP: metrics, status and health")] = DEFAULT_ADDRESSES["admin"]
    control: Annotated[str, _address("gRPC: what the treecast command uses")] = DEFAULT_ADDRESSES["control"]
    fabric: Annotated[str, _address("UDP and TCP between hosts; off: a single host")] = OFF

    admin_names: Annotated[
        str,
        Meta(
            description="names that the admin address accepts beside its addresses, localhost and the"
            " host's own, separated by spaces, * for all; other names get 421",
            extra={"placeholder": "NAMES"},
        ),
    ] = ""
    fabric_advertised: Annotated[
        str,
        Meta(
            description="the address at which other hosts reach the fabric; default: its listening address",
            extra={"placeholder": "HOST:PORT"},
        ),
    ] = ""
    fabric_protection: Annotated[
        Protection,
        Meta(
            description="of packets to other hosts, the same at all of them; sealed: nobody else can read or"
            " make them; authenticated: nobody else can make them; auto: sealed in a secured cluster, else"
            " authenticated"
        ),
    ] = Protection.AUTO
    carrier: Annotated[
        str,
        Meta(
            description="the carriers of topics to other hosts; auto: ip-multicast if several hosts want a"
            " topic and a probe shows that it reaches them, unicast to the rest; stare: as auto, and STARE"
            " switches learn this host's topics; labels: stacks of labels, once the tree manager has"
            " described the network, and unicast to the rest, by UDP with labels=ADDRESS of a switch behind"
            " others; srv6: trees of SRv6 routers, once the network"
            " controller has laid them, and unicast to the rest; relay: hosts forward to hosts, by unicast,"
            " one copy into each --zone; content=FIELDS, as in content=stock:8s;price:u32: messages of topics"
            " that hosts want with filters, copied by P4 switches to whoever wants them, once the content"
            " controller has programmed these; several separated by commas, as in labels,auto: each topic"
            " uses the first carrier that may reach its hosts",
            extra={"placeholder": "auto|content=FIELDS|labels|relay|srv6|stare|unicast"},
        ),
    ] = AUTO
    rest_streams: Annotated[
        bool,
        Meta(
            description="whether streams to other hosts that have no news rest: two hosts then send each"
            " other a packet in 0.75 s, however many topics they share, instead of two a second for each"
            " topic and reader"
        ),
    ] = False
    zone: Annotated[
        str,
        Meta(
            description="the label of the hosts near this one, zones within zones with / between them: links"
            " between zones are dear, and --carrier relay crosses to each zone once; default: none",
            extra={"placeholder": "LABEL"},
        ),
    ] = ""
    mtu: Annotated[
        int,
        Meta(
            description="the longest packets to and from other hosts, with their IP header; 0: the MTU of the"
            " fabric's interface. Shorter paths are found by probes; set it where that is to save the search",
            ge=0,
            le=65_535,
            extra={"placeholder": "BYTES"},
        ),
    ] = 0
    kafka_advertised: Annotated[
        str,
        Meta(
            description="the address announced to Kafka clients; default: the one that each client reached",
            extra={"placeholder": "HOST:PORT"},
        ),
    ] = ""
    access_file: Annotated[
        str,
        Meta(
            description="users and rights of clients, as `treecast users` and `treecast acl`"
            " write them; read again when it changes; default: users.toml in the data directory. While there"
            " is no user, everybody who reaches a listener may do everything",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    audit_log: Annotated[
        str,
        Meta(
            description="who did what to which resource, allowed or not, as lines of JSON; off: none;"
            " default: audit.log in the data directory, once there are users",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    audit_log_bytes: Annotated[
        int,
        Meta(ge=65536, description="the audit log begins a new file at this size; four files are kept"),
    ] = 16 << 20
    kafka_tls: Annotated[str, _address("the Kafka face over TLS")] = OFF
    kafka_tls_advertised: Annotated[
        str,
        Meta(
            description="the address announced to Kafka clients over TLS; default: the one that each reached",
            extra={"placeholder": "HOST:PORT"},
        ),
    ] = ""
    kafka_tls_certificate: Annotated[
        str,
        Meta(
            description="the certificate chain of --kafka-tls, PEM; with the key, or set --kafka-tls-key",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    kafka_tls_key: Annotated[
        str, Meta(description="the private key of --kafka-tls, PEM", extra={"placeholder": "FILE"})
    ] = ""
    kafka_tls_authority: Annotated[
        str,
        Meta(
            description="authorities of client certificates for Kafka over TLS, PEM; default: none required",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    max_request_bytes: Annotated[
        int,
        Meta(
            description="the largest request that the Kafka face accepts",
            ge=1024,
            le=INT31,
            extra={"placeholder": "BYTES"},
        ),
    ] = 100 * 1024 * 1024

    unfinished_request_bytes: Annotated[
        int,
        Meta(
            description="memory for requests of all clients that have not arrived in full, above which the"
            " largest of them wait",
            ge=1 << 20,
            extra={"placeholder": "BYTES"},
        ),
    ] = MOST
    connections_per_address: Annotated[
        int,
        Meta(
            description="limit of connections of one address of another machine to one face; 0: a quarter of"
            " the open files that the faces have",
            ge=0,
            le=INT31,
            extra={"placeholder": "N"},
        ),
    ] = 0

    mqtt_tls: Annotated[str, _address("the MQTT face over TLS")] = OFF
    mqtt_tls_certificate: Annotated[
        str,
        Meta(
            description="the certificate chain of --mqtt-tls, PEM; with the key, or set --mqtt-tls-key",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    mqtt_tls_key: Annotated[
        str, Meta(description="the private key of --mqtt-tls, PEM", extra={"placeholder": "FILE"})
    ] = ""
    mqtt_tls_authority: Annotated[
        str,
        Meta(
            description="authorities of client certificates for MQTT over TLS, PEM; default: none required",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    mqtt_password_file: Annotated[
        str,
        Meta(
            description="users and passwords of MQTT clients, in the format of mosquitto_passwd; default:"
            " everybody is accepted",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    mqtt_max_packet_bytes: Annotated[
        int,
        Meta(
            description="the largest packet that the MQTT face accepts",
            ge=1024,
            le=268_435_455,
            extra={"placeholder": "BYTES"},
        ),
    ] = 16 * 1024 * 1024
    mqtt_max_keep_alive: Annotated[
        int,
        Meta(
            description="the longest keep-alive of MQTT 5 clients, announced to them; 65535: no limit",
            ge=1,
            le=65535,
            extra={"placeholder": "SECONDS"},
        ),
    ] = 65535
    mqtt_max_sessions: Annotated[
        int,
        Meta(description="limit of MQTT sessions, connected or durable", ge=1, le=INT31),
    ] = 100_000
    mqtt_queue_policy: Annotated[
        QueuePolicy, Meta(description="the fate of a message for an MQTT client with a full queue")
    ] = QueuePolicy.DROP_NEW
    mqtt_queue_messages: Annotated[
        int, Meta(description="limit of queued messages per MQTT client", ge=1, le=INT31)
    ] = 100_000
    mqtt_queue_bytes: Annotated[
        int,
        Meta(description="limit of queued bytes per MQTT client", ge=1024, extra={"placeholder": "BYTES"}),
    ] = 64 * 1024 * 1024
    mqtt_refused_filters: Annotated[
        str,
        Meta(
            description="topic filters that MQTT clients may not subscribe to, separated by spaces",
            extra={"placeholder": "FILTERS"},
        ),
    ] = ""
    mqtt_origins: Annotated[
        str,
        Meta(
            description="origins of web pages that may use MQTT over WebSocket, as in https://shop.example,"
            " separated by spaces, beside pages of the address itself; * for all, null for files; other pages"
            " get 403",
            extra={"placeholder": "ORIGINS"},
        ),
    ] = ""
    mqtt_names: Annotated[
        str,
        Meta(
            description="names that MQTT over WebSocket accepts beside its addresses, localhost and the"
            " host's own, separated by spaces, * for all; other names get 421",
            extra={"placeholder": "NAMES"},
        ),
    ] = ""

    amqp_tls: Annotated[str, _address("the AMQP face over TLS")] = OFF
    amqp_tls_certificate: Annotated[
        str,
        Meta(
            description="the certificate chain of --amqp-tls, PEM; with the key, or --amqp-tls-key beside it",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    amqp_tls_key: Annotated[
        str, Meta(description="the private key of --amqp-tls, PEM", extra={"placeholder": "FILE"})
    ] = ""
    amqp_tls_authority: Annotated[
        str,
        Meta(
            description="authorities of client certificates for AMQP over TLS, PEM; default: none required",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    amqp_certificate_login: Annotated[
        CertificateLogin,
        Meta(description="the part of a client certificate that is the user, for EXTERNAL"),
    ] = CertificateLogin.DISTINGUISHED_NAME
    amqp_password_file: Annotated[
        str,
        Meta(
            description="users and passwords of AMQP clients, as mosquitto_passwd writes them; default: guest"
            " with the password guest, from this host only",
            extra={"placeholder": "FILE"},
        ),
    ] = ""
    amqp_max_message_bytes: Annotated[
        int,
        Meta(
            description="the largest message that the AMQP face accepts",
            ge=1024,
            le=536_870_912,
            extra={"placeholder": "BYTES"},
        ),
    ] = 16 * 1024 * 1024
    amqp_heartbeat: Annotated[
        int,
        Meta(
            description="the heartbeat interval offered to AMQP clients, which may choose another; 0: none",
            ge=0,
            le=65535,
            extra={"placeholder": "SECONDS"},
        ),
    ] = 60
    amqp_max_memory_bytes: Annotated[
        int,
        Meta(
            description="memory of the daemon beyond which AMQP publishers wait; 0: 60 % of this machine's",
            ge=0,
            extra={"placeholder": "BYTES"},
        ),
    ] = 0
    amqp_transient_queues: Annotated[
        bool,
        Meta(
            description="whether queues may be declared that are neither durable nor exclusive, which"
            " RabbitMQ 4.3 refuses by default"
        ),
    ] = False
    amqp_quorum_queues: Annotated[
        bool,
        Meta(
            description="whether queues of type quorum may be declared, though this host has their only copy"
        ),
    ] = True

    fsync: Annotated[
        FsyncPolicy,
        Meta(
            description="when acknowledged data is forced to disk, which decides what a power failure may"
            " take (a killed process loses nothing under any policy)"
        ),
    ] = FsyncPolicy.INTERVAL
    fsync_interval_ms: Annotated[int, _milliseconds("the interval of fsync = interval", 1)] = 1000

    telemetry: Annotated[
        TelemetryNames,
        Meta(
            description="whether this host writes what it sends to other hosts, and what filters of its"
            " subscriptions judge, into the topic _treecast.telemetry.sends, for `treecast pipeline`; hashed:"
            " names of streams, patterns and filters are hashed with a key of the cluster, names of hosts"
            " stay; ids of clients are always hashed"
        ),
    ] = TelemetryNames.OFF
    telemetry_interval_ms: Annotated[int, _milliseconds("the interval of telemetry records", 100)] = 10_000

    metrics_listed: Annotated[
        int,
        Meta(
            description="limit of partitions, streams, groups and committed offsets in /metrics, for each"
            " kind; treecast_metrics_left_out counts the others",
            ge=0,
            le=INT31,
            extra={"placeholder": "N"},
        ),
    ] = 2000
    max_partitions: Annotated[
        int,
        Meta(
            description="limit of partitions of all topics; on joined hosts the coordinator's limit applies",
            ge=1,
            le=INT31,
            extra={"placeholder": "N"},
        ),
    ] = 200_000
    default_partitions: Annotated[
        int, Meta(description="partitions of a topic created without a number", ge=1, le=20_000)
    ] = 1
    auto_create_topics: Annotated[
        bool, Meta(description="whether a client's request for a missing topic creates it")
    ] = True
    accept_replication_factor: Annotated[
        bool,
        Meta(
            description="whether to accept a replication factor above 1 from Kafka clients, stored as a"
            " wish; false: it is refused"
        ),
    ] = True
    topic_defaults: Annotated[
        dict[str, str],
        Meta(
            description="topic settings under Kafka's names, for topics that do not override them, such as"
            " retention.ms; a table in the file, separated by ; elsewhere",
            extra={"placeholder": "KEY=VALUE"},
        ),
    ] = {}

    group_initial_rebalance_delay_ms: Annotated[
        int,
        _milliseconds(
            "how long an empty group waits for more members after the first;"
            " less than Kafka's 3000, because members on one host start together"
        ),
    ] = 100
    group_min_session_timeout_ms: Annotated[
        int, _milliseconds("the shortest session timeout that a group member may request", 1)
    ] = 6_000
    group_max_session_timeout_ms: Annotated[
        int, _milliseconds("the longest session timeout that a group member may request", 1)
    ] = 1_800_000
    group_consumer_session_timeout_ms: Annotated[
        int, _milliseconds("how long a member of the new group protocol (KIP-848) may be silent", 1)
    ] = 45_000
    group_consumer_heartbeat_interval_ms: Annotated[
        int, _milliseconds("the heartbeat interval announced to members of the new group protocol", 1)
    ] = 5_000
    offsets_retention_ms: Annotated[
        int, _milliseconds("how long an empty group's committed offsets are kept", 1)
    ] = 604_800_000
    retention_check_interval_ms: Annotated[
        int, _milliseconds("the interval between checks for segments that retention deletes", 1)
    ] = 10_000
    compaction_check_interval_ms: Annotated[
        int, _milliseconds("the interval between checks for logs to compact", 1)
    ] = 15_000
    transaction_max_timeout_ms: Annotated[
        int, _milliseconds("the longest transaction timeout that a producer may request", 1)
    ] = 900_000

    shutdown_grace_ms: Annotated[int, _milliseconds("how long requests in flight may take after SIGTERM")] = (
        5_000
    )
    log_level: Annotated[LogLevel, Meta(description="the least severe level that is logged")] = LogLevel.INFO
    log_format: Annotated[LogFormat, Meta(description="auto: console on a terminal, else JSON lines")] = (
        LogFormat.AUTO
    )


class Key(Struct, frozen=True):
    """One setting. `hint` is its type with its bounds, `base` without; help shows `placeholder`."""

    name: str
    hint: object
    base: type
    default: object
    doc: str
    placeholder: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def default_text(self) -> str:
        """The default in an operator's notation; empty if it depends on the machine."""
        return value_text(self.default)


def value_text(value: object) -> str:
    """Returns a setting's value in the notation of a flag or variable."""
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ";".join(f"{name}={text}" for name, text in value.items())
    return str(value)


@cache
def keys() -> dict[str, Key]:
    """Returns all settings by name, in the order of `Settings`."""
    hints = get_type_hints(Settings, include_extras=True)
    return {field.name: _key(field, hints[field.name]) for field in fields(Settings)}


def _key(field: FieldInfo, hint: object) -> Key:
    annotated, meta = get_args(hint)
    base = get_origin(annotated) or annotated
    default = field.default_factory() if field.default is NODEFAULT else field.default
    placeholder = (meta.extra or {}).get("placeholder", _placeholder(base))
    return Key(field.name, hint, base, default, meta.description, placeholder)


def _placeholder(base: type) -> str:
    if issubclass(base, enum.Enum):
        return "|".join(str(choice.value) for choice in base)
    return {bool: "true|false", int: "N"}.get(base, "TEXT")

"""Settings from flags, variables and a file: precedence, conversion, and the message for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.cli.up import WRONG_USE, command, up
from treecast.middleware.daemon.config import ConfigError, default_data, load
from treecast.middleware.daemon.coordinate import given_database
from treecast.middleware.daemon.faces import listeners
from treecast.middleware.daemon.listeners import StartError
from treecast.middleware.daemon.settings import Settings, keys, value_text
from treecast.middleware.model.carriers import carriers_of
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.storage.settings import FsyncPolicy


def config_file(folder: Path, text: str) -> Path:
    path = folder / "treecast.toml"
    path.write_text(text)
    return path


def test_a_flag_outranks_a_variable_and_a_variable_the_file(tmp_path: Path) -> None:
    path = config_file(tmp_path, "fsync_interval_ms = 1\ndefault_partitions = 2\nmax_request_bytes = 4096\n")
    environment = {"TREECAST_FSYNC_INTERVAL_MS": "10", "TREECAST_DEFAULT_PARTITIONS": "20"}
    loaded = load({"fsync_interval_ms": "100"}, environment, path)
    settings = loaded.settings
    assert (settings.fsync_interval_ms, settings.default_partitions) == (100, 20)
    assert settings.max_request_bytes == 4096
    assert settings.offsets_retention_ms == keys()["offsets_retention_ms"].default
    assert loaded.sources == {
        "fsync_interval_ms": "--fsync-interval-ms",
        "default_partitions": "TREECAST_DEFAULT_PARTITIONS",
        "max_request_bytes": f"{path}: max_request_bytes",
    }


def test_the_file_can_be_named_by_a_variable_and_a_flag_outranks_it(tmp_path: Path) -> None:
    by_variable = config_file(tmp_path, 'fsync = "batch"\n')
    environment = {"TREECAST_CONFIG": str(by_variable)}
    assert load({}, environment).settings.fsync is FsyncPolicy.BATCH
    other = tmp_path / "other.toml"
    other.write_text('fsync = "never"\n')
    assert load({}, environment, other).settings.fsync is FsyncPolicy.NEVER


@pytest.mark.parametrize("key", keys().values(), ids=lambda key: key.name)
def test_each_key_is_a_flag_a_variable_and_a_key_of_the_file(key, tmp_path: Path) -> None:
    text = {
        "kafka_advertised": "example.org:9092",
        "join": "",
        "join_token": "",
        "fabric_advertised": "",
        "topic_defaults": "retention.ms=5",
        "group_consumer_session_timeout_ms": "45001",
        "group_consumer_heartbeat_interval_ms": "4999",
        "group_max_session_timeout_ms": "6001",
        "group_min_session_timeout_ms": "5999",
        "runtime_dir": "/r",
        "name": "h1",
        "data": "/d",
    }.get(key.name, key.default_text)
    by_flag = getattr(load({key.name: text}, {}).settings, key.name)
    by_variable = getattr(load({}, {key.variable: text}).settings, key.name)
    bare = key.base is int or key.base is bool
    line = '[topic_defaults]\n"retention.ms" = 5\n' if key.base is dict else None
    line = line or f"{key.name} = {text if bare else repr(text)}\n"
    by_file = getattr(load({}, {}, config_file(tmp_path, line)).settings, key.name)
    assert by_flag == by_variable == by_file
    assert key.flag in command().help_text()
    assert value_text(by_flag) == text or key.name in ("data", "join")


def test_the_flags_of_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREECAST_CI", raising=False)
    loaded = command().read(
        [
            "--kafka",
            "127.0.0.1:0",
            "--fsync=batch",
            "--topic-defaults",
            "retention.ms=5",
            "--topic-defaults",
            "cleanup.policy=compact,delete",
            "--auto-create-topics",
            "false",
        ]
    )
    settings = loaded.settings
    assert settings.kafka == "127.0.0.1:0"
    assert settings.fsync is FsyncPolicy.BATCH
    assert settings.topic_defaults == {"retention.ms": "5", "cleanup.policy": "compact,delete"}
    assert not settings.auto_create_topics


def test_of_a_repeated_flag_the_last_counts_and_a_value_may_hold_an_equals_sign() -> None:
    loaded = command().read(["--name=a", "--data", "/x=y", "--name", "b=c"])
    assert (loaded.settings.name, loaded.settings.data) == ("b=c", "/x=y")


def test_a_file_named_by_a_flag(tmp_path: Path) -> None:
    path = config_file(tmp_path, 'fsync = "never"\n')
    assert command().read([f"--config={path}"]).settings.fsync is FsyncPolicy.NEVER


def test_topic_defaults_of_a_file_take_tomls_types(tmp_path: Path) -> None:
    path = config_file(
        tmp_path,
        '[topic_defaults]\n"retention.ms" = 60000\npreallocate = true\n'
        '"cleanup.policy" = ["compact", "delete"]\n',
    )
    defaults = load({}, {}, path).settings.topic_defaults
    assert TopicConfig.of(defaults=defaults).retention_ms == 60000
    assert defaults == {
        "retention.ms": "60000",
        "preallocate": "true",
        "cleanup.policy": "compact,delete",
    }


@pytest.mark.parametrize(
    ("flags", "environment", "text", "said"),
    [
        ({}, {}, "fsnc = 1", "treecast.toml: unknown key 'fsnc'; did you mean 'fsync'?"),
        ({}, {}, "= 1", "is not TOML"),
        (
            {},
            {},
            'fsync = "always"',
            "fsync: 'always' does not fit: expected one of never, interval, batch (never|interval|batch)",
        ),
        (
            {},
            {},
            'default_partitions = "3x"',
            "default_partitions: '3x' does not fit: expected a whole number (N)",
        ),
        ({}, {}, "default_partitions = 0", "0 does not fit: expected a number of at least 1 (N)"),
        ({}, {}, "kafka = 9092", "kafka: 9092 does not fit: expected text in quotes (HOST:PORT|off)"),
        ({}, {}, "topic_defaults = 1", "expected a table"),
        (
            {},
            {"TREECAST_FSNYC": "batch"},
            "",
            "unknown variable TREECAST_FSNYC; did you mean TREECAST_FSYNC?",
        ),
        (
            {},
            {"TREECAST_AUTO_CREATE_TOPICS": "maybe"},
            "",
            "TREECAST_AUTO_CREATE_TOPICS: 'maybe' does not fit: expected true or false",
        ),
        ({"kafka": "9092"}, {}, "", "--kafka: '9092' is not an address: expected HOST:PORT"),
        ({"kafka": "h:port"}, {}, "", "port 'port' is not a number from 0 to 65535"),
        ({"kafka": "h:65536"}, {}, "", "not a number from 0 to 65535"),
        ({"admin": "::1:7670"}, {}, "", "brackets, as in [::1]:7670"),
        ({"kafka_advertised": "h:0"}, {}, "", "clients cannot be told port 0"),
        ({"join": "h:7671"}, {}, "", "--join: the fabric is off, and a host alone has no cluster"),
        ({"fabric": "0.0.0.0:7672"}, {}, "", "set it with --fabric-advertised HOST:PORT"),
        ({"fabric": "h:7672", "join": "h:0"}, {}, "", "--join: port 0 is not valid"),
        ({"name": "a b"}, {}, "", "holds white space"),
        ({"topic_defaults": "retention.ms"}, {}, "", "expected KEY=VALUE"),
        ({"topic_defaults": "retention.mss=1"}, {}, "", "did you mean 'retention.ms'?"),
        ({"topic_defaults": "retention.ms=x"}, {}, "", "invalid value 'x' for retention.ms"),
        (
            {"group_min_session_timeout_ms": "9999999"},
            {},
            "",
            "the shortest session timeout is above the longest",
        ),
        (
            {"group_consumer_heartbeat_interval_ms": "60000"},
            {},
            "",
            "members would be silent for longer than the session timeout",
        ),
    ],
)
def test_what_is_said_of_a_mistake(
    flags: dict[str, str], environment: dict[str, str], text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(flags, environment, config_file(tmp_path, text))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "carriers"),
    [
        ("auto", {"ip-multicast": ""}),
        ("unicast", {}),
        ("stare", {"stare": ""}),
        ("labels", {"labels": ""}),
        ("labels=10.0.0.9, auto", {"labels": "10.0.0.9", "ip-multicast": ""}),
        ("labels,unicast", {"labels": ""}),
    ],
)
def test_carriers_are_named_in_the_order_of_preference(text: str, carriers: dict[str, str]) -> None:
    found = carriers_of(load({"carrier": text}, {}).settings.carrier)
    assert list(found.items()) == list(carriers.items())


@pytest.mark.parametrize("text", ["", "teleport", "auto,,labels", "stare,auto", "carrier"])
def test_carriers_that_there_are_not(text: str) -> None:
    with pytest.raises(ConfigError, match="--carrier"):
        load({"carrier": text}, {})


def test_every_default_address_is_loopback() -> None:
    for face in listeners():
        assert getattr(Settings(), face) == "off" or getattr(Settings(), face).startswith("127.0.0.1:")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*missing.toml: No such file"):
        load({}, {}, tmp_path / "missing.toml")


def test_a_variable_of_another_program_is_only_remarked() -> None:
    loaded = load({}, {"TREECAST_PAPERS_URL": "x", "TREECAST_CI": "1", "OTHER": "y"})
    assert loaded.remarks == ("TREECAST_PAPERS_URL is not a setting of the daemon and is ignored",)


@pytest.mark.parametrize(
    "rest",
    [
        *(
            "PORT",
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_KAFKA",
            "PORT_9092_TCP",
            "PORT_9092_TCP_ADDR",
        ),
        *(
            "KAFKA_PORT",
            "KAFKA_SERVICE_HOST",
            "MQTT_PORT_1883_TCP_PROTO",
            "AMQP_PORT",
            "DATA_PORT_53_UDP_PORT",
        ),
        *("JOIN_SERVICE_PORT", "STORE_PORT", "HOME", "USER", "IMAGE", "VERSION", "REPLICAS", "HOST", "POD"),
    ],
)
def test_names_that_others_generate_are_never_fatal(rest: str) -> None:
    loaded = load({}, {f"TREECAST_{rest}": "tcp://10.0.0.5:9092"})
    assert len(loaded.remarks) == 1
    assert loaded.settings == load({}, {}).settings


@pytest.mark.parametrize(
    ("rest", "meant"),
    [
        *(("AMPQ", "AMQP"), ("KAFAK", "KAFKA"), ("NAMES", "NAME"), ("DAT", "DATA"), ("FSYNCH", "FSYNC")),
        *(
            ("JOIN_TOKKEN", "JOIN_TOKEN"),
            ("MQTT_MAX_SESSION", "MQTT_MAX_SESSIONS"),
            ("LOGLEVEL", "LOG_LEVEL"),
        ),
    ],
)
def test_a_variable_that_is_nearly_a_setting_is_refused(rest: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean TREECAST_{meant}\\?"):
        load({}, {f"TREECAST_{rest}": "x"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fsnyc", "batch"], "unknown flag --fsnyc; did you mean --fsync?"),
        (["--kafak=off"], "unknown flag --kafak; did you mean --kafka?"),
        (["now"], "unexpected argument 'now'"),
        (["--fsync"], "--fsync: expected one argument"),
        (["--fsync", "--kafka=off"], "--fsync: expected one argument"),
    ],
)
def test_unknown_flags(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        command().read(arguments)
    assert said in str(refused.value)


def test_the_data_directory_follows_who_runs_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_data({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}) == "/var/lib/a"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert default_data({}) == "/var/lib/treecast"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert default_data({"XDG_STATE_HOME": "/home/u/.state"}) == "/home/u/.state/treecast"


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_gives_settings_or_a_configuration_error(name: str, value: str) -> None:
    key = list(keys().values())[len(name) % len(keys())]
    refused = ""
    try:
        load({key.name: value}, {})
    except ConfigError as error:
        refused = str(error)
    assert not refused or key.flag in refused


def test_a_daemon_takes_no_store_of_coordinators(capsys: pytest.CaptureFixture[str]) -> None:
    assert up(["--store", "postgresql://h/d"]) == WRONG_USE
    assert "--store: the store is of `treecast coordinator`" in capsys.readouterr().err


def test_several_coordinators_can_be_joined() -> None:
    joined = {"fabric": "127.0.0.1:1", "join": "10.0.0.1:7671,10.0.0.2:7671"}
    assert load(joined, {}).settings.join == joined["join"]
    with pytest.raises(ConfigError, match="port 0 is not valid"):
        load(joined | {"join": "10.0.0.1:7671,10.0.0.2:0"}, {})
    with pytest.raises(ConfigError, match="not an address"):
        load(joined | {"join": "10.0.0.1:7671,"}, {})


@pytest.mark.parametrize("given", ["mysql://h/d", "@/nowhere/at/all", "h:5432"])
def test_a_store_that_is_no_url_is_refused(given: str) -> None:
    with pytest.raises(StartError, match="--store"):
        given_database(given)


def test_a_store_can_be_in_a_file(tmp_path: Path) -> None:
    url = "postgresql://u:secret@h/d"
    assert given_database(url) == url
    assert given_database("") == ""
    (tmp_path / "store").write_text(url + "\n")
    assert given_database(f"@{tmp_path / 'store'}") == url

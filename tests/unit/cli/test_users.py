"""`treecast users` and `treecast acl` change the file of users, and say what they did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from treecast.middleware.broker.access import Rate
from treecast.middleware.cli.app import app
from treecast.middleware.cli.output import CommandError
from treecast.middleware.daemon.users_file import load_users
from treecast.middleware.model.scram import SHA256, SHA512


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "users.toml"
    monkeypatch.setenv("TREECAST_ACCESS_FILE", str(path))
    return path


def run(*arguments: str, text: str = "") -> str:
    done = CliRunner().invoke(app, list(arguments), input=text)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def refused(*arguments: str, text: str = "") -> str:
    with pytest.raises(CommandError) as error:
        run(*arguments, text=text)
    return str(error.value)


def test_users(file: Path) -> None:
    assert "every client may do everything" in run("users", "list")
    assert run("users", "add", "root", "--admin", text="secret\n") == "added root, who may do everything\n"
    assert "treecast acl add" in run("users", "add", "alice", text="hers\n")
    content = load_users(file)
    assert content is not None
    for mechanism in (SHA256, SHA512):
        assert content.users["root"].verifiers[mechanism].fits(b"secret")
    assert "secret" not in file.read_text()
    run("users", "password", "alice", text="new\n")
    content = load_users(file)
    assert content is not None
    assert content.users["alice"].verifiers[SHA256].fits(b"new")
    assert [(row["name"], row["admin"]) for row in json.loads(run("users", "list", "--json"))] == [
        ("root", True),
        ("alice", False),
    ]
    run("acl", "add", "alice", "read", "--topic", "orders")
    run("users", "delete", "alice")
    content = load_users(file)
    assert content is not None
    assert list(content.users) == ["root"]
    assert content.rules == ()


def test_mistakes_of_users(file: Path, tmp_path: Path) -> None:
    assert "an empty password" in refused("users", "add", "alice", text="\n")
    assert "printable" in refused("users", "add", "a\nb", text="x\n")
    assert "there is no user bob" in refused("users", "delete", "bob")
    run("users", "add", "alice", text="x\n")
    assert "there is a user alice already" in refused("users", "add", "alice", text="x\n")
    missing = str(tmp_path / "none" / "users.toml")
    assert "there is no such directory" in refused("users", "add", "a", "--file", missing, text="x\n")
    file.write_text("[users")
    assert "users.toml" in refused("users", "list")


def test_rules(file: Path) -> None:
    run("users", "add", "alice", text="x\n")
    said = run("acl", "add", "alice", "read,write", "--topic", "orders.", "--prefixed")
    assert said == (
        "allow alice read on topic prefixed 'orders.'\nallow alice write on topic prefixed 'orders.'\n"
    )
    run("acl", "add", "*", "all", "--topic", "orders.secret", "--deny", "--address", "10.0.0.7")
    assert "allowed: allow alice write" in run("acl", "check", "alice", "write", "--topic", "orders.eu")
    assert "refused: no rule" in run("acl", "check", "alice", "write", "--topic", "bills")
    at = ("--topic", "orders.secret", "--address")
    assert "refused: deny * all" in run("acl", "check", "alice", "read", *at, "10.0.0.7")
    assert "allowed" in run("acl", "check", "alice", "read", *at, "10.0.0.8")
    assert [row["operation"] for row in json.loads(run("acl", "list", "--json"))] == ["read", "write", "all"]
    run("acl", "remove", "alice", "read", "--topic", "orders.", "--prefixed")
    assert "there is no rule" in refused("acl", "remove", "alice", "read", "--topic", "orders.", "--prefixed")
    assert len(json.loads(run("acl", "list", "--json"))) == 2


def test_mistakes_of_rules(file: Path) -> None:
    run("users", "add", "alice", text="x\n")
    assert "name one resource" in refused("acl", "add", "alice", "read")
    assert "name one resource" in refused("acl", "add", "alice", "read", "--topic", "a", "--group", "b")
    assert "no operation 'reed'" in refused("acl", "add", "alice", "reed", "--topic", "a")
    assert "there is no user bob" in refused("acl", "add", "bob", "read", "--topic", "a")


def test_quotas(file: Path) -> None:
    assert "no quotas" in run("quotas", "list")
    assert run("quotas", "set", "--user", "alice", "--produce-bytes", "1e6", "--requests", "200") == (
        "user alice: produce-bytes 1,000,000, requests 200\n"
    )
    assert "produce-bytes 5, requests 200" in run("quotas", "set", "--user", "alice", "--produce-bytes", "5")
    run("quotas", "set", "--user", "*", "--client-id", "*", "--fetch-bytes", "7.5")
    assert "address 10.0.0.7: connections 20" in run(
        "quotas", "set", "--address", "10.0.0.7", "--connections", "20"
    )
    content = load_users(file)
    assert content is not None
    assert [(one.key, dict(one.rates)) for one in content.quotas] == [
        (("alice", "", ""), {Rate.PRODUCE: 5.0, Rate.REQUESTS: 200.0}),
        (("*", "*", ""), {Rate.FETCH: 7.5}),
        (("", "", "10.0.0.7"), {Rate.CONNECTIONS: 20.0}),
    ]
    assert "10.0.0.7" in run("quotas", "list")
    assert json.loads(run("quotas", "list", "--json"))[0]["produce-bytes"] == 5.0
    assert "no such quota" in refused("quotas", "delete", "--user", "bob")
    run("quotas", "delete", "--user", "alice")
    assert "alice" not in run("quotas", "list")
    assert "name --user" in refused("quotas", "set", "--produce-bytes", "5")
    assert "above 0" in refused("quotas", "set", "--user", "bob", "--produce-bytes", "0")
    assert "give connections" in refused("quotas", "set", "--address", "*", "--requests", "5")


def test_users_of_this_machine_only(file: Path) -> None:
    run("users", "add", "root", "--admin", "--local-only", text="secret\n")
    run("users", "password", "root", text="new\n")
    content = load_users(file)
    assert content is not None
    assert (content.users["root"].local, content.users["root"].admin) == (True, True)
    assert "this machine" in run("users", "list")

"""`treecast users` and `treecast acl`: show and change the file of users and rights (`users.toml`).

The commands change the file; daemons that use it read it again. A password is asked for, or read from a file
or from standard input: it never stands in a command line, and it is not stored.
"""

from __future__ import annotations

import getpass
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from treecast.middleware.broker.access import (
    ALL,
    CLUSTER,
    EVERYBODY,
    Content,
    Identities,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceKind,
    Rule,
    User,
    UsersFileError,
    check_user_name,
    with_rules,
    without_rules,
)
from treecast.middleware.daemon.config import default_data
from treecast.middleware.daemon.users_file import FILE, change_users, load_users
from treecast.middleware.model.principal import Principal
from treecast.middleware.model.scram import SALT_BYTES, SHA256, SHA512, verifier

from .options import Json
from .output import CommandError, print_json, print_table, say

users = typer.Typer(no_args_is_help=True, help="Show and change users.")
acl = typer.Typer(no_args_is_help=True, help="Show and change what users may do.")

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        envvar="TREECAST_ACCESS_FILE",
        show_envvar=False,
        help="The file of users. Default: TREECAST_ACCESS_FILE, else users.toml in the data directory.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file with the password. Default: ask for it, or read it from standard input.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]


def path_of(file: Path | None) -> Path:
    return file or Path(os.environ.get("TREECAST_DATA") or default_data(os.environ)) / FILE


def load(file: Path | None) -> Content:
    path = path_of(file)
    try:
        return load_users(path) or Content()
    except (OSError, UsersFileError) as error:
        raise CommandError(f"{path}: {error}") from error


def change(file: Path | None, how: Callable[[Content], Content]) -> None:
    path = path_of(file)
    try:
        change_users(path, how)
    except FileNotFoundError as error:
        advice = "name the file with --file FILE, or the directory with TREECAST_DATA"
        raise CommandError(f"{path}: there is no such directory; {advice}") from error
    except (OSError, UsersFileError) as error:
        raise CommandError(f"{path}: {error}") from error


# --- users


def _password(file: Path | None) -> bytes:
    if file is not None:
        try:
            found = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"--password-file {file}: {error}") from error
    elif sys.stdin.isatty():
        found = getpass.getpass("password: ")
        if getpass.getpass("again: ") != found:
            raise CommandError("the two passwords differ; nothing was changed")
    else:
        found = sys.stdin.readline()
    password = found.rstrip("\r\n")
    if not password:
        raise CommandError("an empty password; nothing was changed")
    return password.encode()


def _with_password(known: User, password: bytes) -> User:
    made = [verifier(one, password, secrets.token_bytes(SALT_BYTES)) for one in (SHA256, SHA512)]
    return msgspec.structs.replace(known, verifiers={one.mechanism: one for one in made})


@users.command("add")
def add_user(
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything.")] = False,
    local_only: Annotated[
        bool, typer.Option("--local-only", help="Logs in from the machine of a daemon only, by loopback.")
    ] = False,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Logs in by certificate only, without a password.")
    ] = False,
    password_file: PasswordFile = None,
    file: File = None,
) -> None:
    """Adds a user. From the first one on, clients have to log in."""
    try:
        check_user_name(name)
    except UsersFileError as error:
        raise CommandError(str(error)) from error
    if name in load(file).users:
        raise CommandError(f"there is a user {name} already; `treecast users password` changes the password")
    if certificate and password_file is not None:
        raise CommandError("a user of certificates only has no password: leave --password-file out")
    user = User(name, admin=admin, local=local_only)
    if not certificate:
        user = _with_password(user, _password(password_file))
    change(file, lambda content: _with(content, user))
    say(f"added {name}" + (", who may do everything" if admin else "; `treecast acl add` gives rights"))


@users.command("password")
def change_password(name: Name, password_file: PasswordFile = None, file: File = None) -> None:
    """Changes a user's password. Open connections go on."""
    known = _user(load(file), name)
    user = _with_password(known, _password(password_file))
    change(file, lambda content: _with(content, user))
    say(f"changed the password of {name}")


@users.command("delete")
def delete_user(name: Name, file: File = None) -> None:
    """Deletes a user and its rules. Its connections end."""
    _user(load(file), name)
    change(file, lambda content: _without(content, name))
    say(f"deleted {name}")


def _without(content: Content, name: str) -> Content:
    left = {key: user for key, user in content.users.items() if key != name}
    rules = tuple([rule for rule in content.rules if rule.user != name])
    return msgspec.structs.replace(content, users=left, rules=rules)


def _with(content: Content, user: User) -> Content:
    return msgspec.structs.replace(content, users={**content.users, user.name: user})


def _user(content: Content, name: str) -> User:
    if name not in content.users:
        raise CommandError(f"there is no user {name}; `treecast users list` lists all")
    return content.users[name]


@users.command("list")
def list_users(json: Json = False, file: File = None) -> None:
    """Lists all users, without what is stored of their passwords."""
    content = load(file)
    found = [
        {
            "name": user.name,
            "admin": user.admin,
            "local_only": user.local,
            "mechanisms": list(user.verifiers),
            "rules": sum(rule.user == user.name for rule in content.rules),
        }
        for user in content.users.values()
    ]
    if json:
        print_json(found)
        return
    print_table(
        ("user", "admin", "logs in by", "from", "rules"),
        [
            (
                user.name,
                "yes" if user.admin else "-",
                " ".join(user.verifiers) or "-",
                "this machine" if user.local else "anywhere",
                str(row["rules"]),
            )
            for user, row in zip(content.users.values(), found, strict=True)
        ],
        empty="no users: every client may do everything; add one with `treecast users add NAME --admin`",
    )


# --- rules

RuleUser = Annotated[str, typer.Argument(metavar="USER", help="The user's name, or '*' for everybody.")]
Operations = Annotated[
    str, typer.Argument(metavar="OPERATION,...", help="read, write, describe and so on, or all.")
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="As Kafka spells it; '*': all.")]
Group = Annotated[str | None, typer.Option("--group", metavar="NAME", help="A consumer group; '*': all.")]
TransactionalId = Annotated[str | None, typer.Option("--transactional-id", metavar="NAME")]
Exchange = Annotated[str | None, typer.Option("--exchange", metavar="NAME", help="Of AMQP, in /.")]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Of AMQP, in /.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="All names that begin so.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny it, which wins over all that allows it.")]
From = Annotated[str, typer.Option("--address", metavar="IP", help="Only from there. Default: everywhere.")]


def _resource(named: dict[ResourceKind, str | None]) -> Resource:
    given = [Resource(kind, name) for kind, name in named.items() if name]
    if len(given) != 1:
        options = "--topic, --group, --transactional-id, --cluster, --exchange or --queue"
        raise CommandError(f"name one resource: {options}")
    return given[0]


def _named(
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    exchange: str | None,
    queue: str | None,
) -> Resource:
    return _resource(
        {
            ResourceKind.TOPIC: topic,
            ResourceKind.GROUP: group,
            ResourceKind.TRANSACTIONAL_ID: transactional_id,
            ResourceKind.CLUSTER: CLUSTER if cluster else None,
            ResourceKind.EXCHANGE: exchange,
            ResourceKind.QUEUE: queue,
        }
    )


def _operation(text: str) -> Operation | None:
    known = {one.value: one for one in Operation}
    if text != ALL and text not in known:
        raise CommandError(f"there is no operation {text!r}; known are {', '.join([ALL, *known])}")
    return known.get(text)


def _rules(
    user: str, operations: str, resource: Resource, prefixed: bool, deny: bool, address: str
) -> list[Rule]:
    pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    return [
        Rule(user, permission, _operation(one), resource.kind, pattern, resource.name, address)
        for one in operations.split(",")
    ]


@acl.command("add")
def add_rules(
    user: RuleUser,
    operations: Operations,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    exchange: Exchange = None,
    queue: Queue = None,
    prefixed: Prefixed = False,
    deny: Deny = False,
    address: From = EVERYBODY,
    file: File = None,
) -> None:
    """Allows or denies a user operations on a resource."""
    resource = _named(topic, group, transactional_id, cluster, exchange, queue)
    rules = _rules(user, operations, resource, prefixed, deny, address)
    if user != EVERYBODY:
        _user(load(file), user)
    change(file, with_rules(rules))
    for rule in rules:
        say(rule.words)


@acl.command("remove")
def remove_rules(
    user: RuleUser,
    operations: Operations,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    exchange: Exchange = None,
    queue: Queue = None,
    prefixed: Prefixed = False,
    deny: Deny = False,
    address: From = EVERYBODY,
    file: File = None,
) -> None:
    """Removes rules, given as to `add`."""
    resource = _named(topic, group, transactional_id, cluster, exchange, queue)
    rules = _rules(user, operations, resource, prefixed, deny, address)
    known = load(file).rules
    missing = [rule.words for rule in rules if rule not in known]
    if missing:
        raise CommandError(f"there is no rule: {'; '.join(missing)}; `treecast acl list` lists all")
    change(file, without_rules(rules))
    for rule in rules:
        say(f"removed: {rule.words}")


@acl.command("list")
def list_rules(json: Json = False, file: File = None) -> None:
    """Lists all rules."""
    rows = [
        (
            rule.user,
            rule.permission.value,
            rule.operation.value if rule.operation is not None else ALL,
            rule.kind.value,
            rule.pattern.value,
            rule.name,
            rule.address,
        )
        for rule in load(file).rules
    ]
    columns = ("user", "permission", "operation", "resource", "pattern", "name", "address")
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    print_table(columns, rows, empty="no rules: only administrators may do anything")


@acl.command("check")
def check_rules(
    user: Name,
    operation: Annotated[str, typer.Argument(metavar="OPERATION")],
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    exchange: Exchange = None,
    queue: Queue = None,
    address: Annotated[str, typer.Option("--address", metavar="IP", help="From where.")] = "127.0.0.1",
    file: File = None,
) -> None:
    """Says whether a user may do something, and by which rule. Exits with 1 if not."""
    asked = _operation(operation)
    if asked is None:
        raise CommandError("ask for one operation")
    resource = _named(topic, group, transactional_id, cluster, exchange, queue)
    content = load(file)
    decision = Identities(content).decide(Principal(user, address=address), asked, resource)
    say(f"{'allowed' if decision.allowed else 'refused'}: {decision.rule}")
    if not decision.allowed:
        raise typer.Exit(1)

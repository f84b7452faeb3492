"""`treecast quotas`: show and change the quotas in the file of users. Daemons read it again."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from treecast.middleware.broker.access import Content, Quota, Rate, check_quota

from .options import Json
from .output import CommandError, print_json, print_table, say
from .users import File, change, load

quotas = typer.Typer(no_args_is_help=True, help="Show and change how much clients may send, get and ask for.")

_User = Annotated[
    str, typer.Option("--user", metavar="USER", help="'*': each user without a quota of its own.")
]
_ClientId = Annotated[
    str, typer.Option("--client-id", metavar="ID", help="'*': each client id without a quota of its own.")
]
_Address = Annotated[
    str, typer.Option("--address", metavar="IP", help="New connections of another machine; '*': of each.")
]


def _key(user: str, client_id: str, address: str) -> tuple[str, str, str]:
    if bool(address) == bool(user or client_id):
        raise CommandError("name --user, --client-id, or both; or else --address")
    return user, client_id, address


@quotas.command("set")
def set_quota(
    user: _User = "",
    client_id: _ClientId = "",
    address: _Address = "",
    produce_bytes: Annotated[
        float | None, typer.Option(metavar="N", help="Bytes per second that clients may send.")
    ] = None,
    fetch_bytes: Annotated[
        float | None, typer.Option(metavar="N", help="Bytes per second that clients may get.")
    ] = None,
    requests: Annotated[float | None, typer.Option(metavar="N", help="Requests of Kafka per second.")] = None,
    connections: Annotated[
        float | None, typer.Option(metavar="N", help="New connections per second, of an address.")
    ] = None,
    file: File = None,
) -> None:
    """Sets rates of a user, a client id, both, or an address. Other rates of it stay."""
    key = _key(user, client_id, address)
    numbers = (produce_bytes, fetch_bytes, requests, connections)
    given = {rate: one for rate, one in zip(Rate, numbers, strict=True) if one is not None}
    made = Quota(user, client_id, given, address)
    try:
        check_quota(made)
    except ValueError as error:
        raise CommandError(str(error)) from None
    change(file, lambda content: _with(content, made))
    found = next(one for one in load(file).quotas if one.key == key)
    say(f"{_who(found)}: {_rates(found)}")


def _with(content: Content, made: Quota) -> Content:
    kept = {one.key: one for one in content.quotas}
    before = kept.get(made.key)
    rates = {**(before.rates if before is not None else {}), **made.rates}
    kept[made.key] = msgspec.structs.replace(made, rates=rates)
    return msgspec.structs.replace(content, quotas=tuple(kept.values()))


@quotas.command("delete")
def delete_quota(
    user: _User = "", client_id: _ClientId = "", address: _Address = "", file: File = None
) -> None:
    """Deletes a quota, named as to `set`."""
    key = _key(user, client_id, address)
    found = [one for one in load(file).quotas if one.key == key]
    if not found:
        raise CommandError("there is no such quota; `treecast quotas list` lists all")
    change(file, lambda content: _without(content, key))
    say(f"deleted the quota of {_who(found[0])}")


def _without(content: Content, key: tuple[str, str, str]) -> Content:
    left = tuple([one for one in content.quotas if one.key != key])
    return msgspec.structs.replace(content, quotas=left)


@quotas.command("list")
def list_quotas(json: Json = False, file: File = None) -> None:
    """Lists all quotas."""
    found = load(file).quotas
    if json:
        print_json(
            [
                {"user": one.user, "client-id": one.client_id, "address": one.address}
                | {rate.value: one.rates.get(rate) for rate in Rate}
                for one in found
            ]
        )
        return
    print_table(
        ("user", "client id", "address", "rates in a second"),
        [(one.user or "-", one.client_id or "-", one.address or "-", _rates(one)) for one in found],
        empty="no quotas: clients may send and get as much as they can",
    )


def _who(quota: Quota) -> str:
    named = (("user", quota.user), ("client id", quota.client_id), ("address", quota.address))
    return ", ".join([f"{what} {name}" for what, name in named if name])


def _rates(quota: Quota) -> str:
    return ", ".join([f"{rate.value} {number:,.10g}" for rate, number in quota.rates.items()])

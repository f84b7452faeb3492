"""`treecast filter`: checks packet subscriptions before they are used."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Json
from .output import CommandError, print_json, print_pairs

app = typer.Typer(no_args_is_help=True, help="Check packet subscriptions.")


@app.callback()
def _group() -> None:
    """A group, so that `check` remains a subcommand."""


@app.command()
def check(
    text: Annotated[str, typer.Argument(metavar="FILTER", help="As in 'stock == GOOGL and price > 50'.")],
    json: Json = False,
) -> None:
    """Shows how a filter is parsed, and which fields of a message it needs."""
    from treecast.middleware.filters.errors import FilterError
    from treecast.middleware.filters.parse import parse
    from treecast.middleware.filters.text import to_text
    from treecast.middleware.filters.tree import aggregates, constraints, fields

    try:
        tree = parse(text)
    except FilterError as error:
        raise CommandError(str(error)) from error
    read = [".".join(field.path) for field in fields(tree)]
    count = sum(1 for _ in constraints(tree))
    stateless = not aggregates(tree)
    if json:
        print_json({"filter": to_text(tree), "fields": read, "constraints": count, "stateless": stateless})
        return
    print_pairs(
        [
            ("filter", to_text(tree)),
            ("fields", ", ".join(read) or "none"),
            ("constraints", count),
            ("state", "none" if stateless else "aggregates: evaluated at the last hop only"),
        ]
    )

"""`treecast filter`: checks packet subscriptions, makes views of topics, compiles rules for P4 switches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import views
from .options import Json
from .output import CommandError, plain, print_json, print_pairs, print_table, say

if TYPE_CHECKING:
    from treecast.middleware.filters.actions import Rules
    from treecast.middleware.filters.compiler.compile import Compiled
    from treecast.middleware.filters.compiler.overflow import Fitted
    from treecast.middleware.filters.compiler.schema import Schema

app = typer.Typer(
    no_args_is_help=True,
    help="Check packet subscriptions, make views of topics, and compile rules for P4 switches.",
)
app.command("create")(views.create)
app.command("list")(views.list_views)
app.command("delete")(views.delete)

FAILED = 1
MOST_WARNINGS = 20  # shown
MOST_COMBINATIONS = 200_000  # entries of one big table; more are not counted

RuleFile = Annotated[Path, typer.Argument(metavar="RULES", help="Lines as 'stock == GOOGL : fwd(1)'.")]
HeaderFile = Annotated[
    Path, typer.Option("--header", metavar="H.p4", help="Headers in P4, with @pragma query_field(...) lines.")
]
Order = Annotated[
    str,
    typer.Option(
        "--order",
        metavar="FIELD,...",
        help="The order of the fields' tables. Default: as in the header file.",
    ),
]
Alpha = Annotated[
    int,
    typer.Option("--alpha", min=1, help="Loosens numbers to multiples of this, so that entries are fewer."),
]
States = Annotated[int, typer.Option("--states", min=1, help="The most states that a diagram may have.")]
Size = Annotated[
    int,
    typer.Option("--size", min=1, help="Entries that each table holds. Rules that need more are widened."),
]
Refuse = Annotated[bool, typer.Option("--refuse", help="Refuses rules that do not fit, and widens none.")]
Search = Annotated[
    int,
    typer.Option("--search", min=0, metavar="N", help="Compiles up to N orders and takes the smallest."),
]
Seed = Annotated[int, typer.Option("--seed", help="Of the search.")]
SIZE = 1 << 17


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


@app.command("compile")
def compile_(
    rules: RuleFile,
    header: HeaderFile,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files are written.")],
    order: Order = "",
    alpha: Alpha = 1,
    states: States = 2_000_000,
    size: Size = SIZE,
    refuse: Refuse = False,
    search: Search = 0,
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Writes a P4 program for the headers, and the rules as its entries: vectors and P4Runtime text."""
    from treecast.middleware.dataplane.p4 import load_program
    from treecast.middleware.dataplane.subscriptions.entries import installation
    from treecast.middleware.dataplane.subscriptions.texts import request_text, vectors
    from treecast.middleware.filters.compiler.program import program_text

    fit = _fitted(rules, header, order or _search(rules, header, search, seed), alpha, states, size, refuse)
    compiled = fit.compiled
    text = program_text(compiled.schema, compiled.order, size)
    found = installation(compiled)
    files = {
        f"{rules.stem}.p4": text,
        f"{rules.stem}.stf": "\n".join(vectors(found)) + "\n",
        f"{rules.stem}.p4runtime.txt": request_text(load_program(text, f"{rules.stem}.p4"), found),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (out / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--out {out}: {error.strerror}") from error
    written = [str(out / name) for name in files]
    if json:
        print_json({"written": written, **_statistics(compiled)})
        return
    say(
        f"{len(compiled.terms.terms):,} terms, {compiled.entries:,} entries, "
        f"{len(compiled.groups):,} multicast groups"
    )
    for name in written:
        say(f"written: {name}")


@app.command()
def explain(
    rules: RuleFile,
    header: HeaderFile,
    packet: Annotated[
        list[str],
        typer.Argument(metavar="FIELD=VALUE...", help="A packet; fields that are not named are absent."),
    ],
    order: Order = "",
    alpha: Alpha = 1,
    json: Json = False,
) -> None:
    """Shows which rules a packet matches, and which table entries send it where. State is empty."""
    from treecast.middleware.filters.compiler.direct import Direct
    from treecast.middleware.filters.compiler.drawing import effect_text
    from treecast.middleware.filters.compiler.machine import TableMachine

    compiled = _compiled(rules, header, order, alpha, 2_000_000)
    values = _packet(compiled.schema, packet)
    steps, leaf = TableMachine(compiled).trace(values, 0)
    parsed = _parsed(rules)
    matching = Direct(compiled.schema, parsed).matching(values, 0)
    shown = [
        (parsed.text.count("\n", 0, rule.position) + 1, _one_line(parsed.text, rule.position))
        for rule in matching
    ]
    action = effect_text(compiled.leaves[leaf])
    rows = [(one.table, one.part or "no entry", one.state, _value(one.value), one.after) for one in steps]
    names = ("table", "part", "state", "value", "next state")
    if json:
        print_json(
            {
                "rules": [{"line": line, "rule": text} for line, text in shown],
                "lookups": [dict(zip(names, row, strict=True)) for row in rows],
                "leaf": leaf,
                "action": action,
            }
        )
        return
    print_table(("line", "rule"), shown, empty="no rule matches")
    print()
    print_table(names, rows, empty="no table is looked up")
    print()
    say(f"leaf {leaf}: {action}")


@app.command()
def draw(
    rules: RuleFile,
    header: HeaderFile,
    out: Annotated[Path, typer.Option("--out", metavar="X.svg", help="The picture.")],
    order: Order = "",
    alpha: Alpha = 1,
) -> None:
    """Draws the decision diagram of the rules, as SVG."""
    from treecast.middleware.filters.compiler.drawing import TooLargeToDraw, svg_of

    compiled = _compiled(rules, header, order, alpha, 2_000_000)
    try:
        out.write_text(svg_of(compiled), encoding="utf-8")
    except TooLargeToDraw as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{out} cannot be written: {error.strerror}") from error
    say(f"written: {out}")


@app.command()
def stats(
    rules: RuleFile,
    header: HeaderFile,
    order: Order = "",
    alpha: Alpha = 1,
    states: States = 2_000_000,
    size: Size = SIZE,
    refuse: Refuse = False,
    search: Search = 0,
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Shows what the rules need of a switch, table by table, and what one big table would need."""
    fit = _fitted(rules, header, order or _search(rules, header, search, seed), alpha, states, size, refuse)
    found = _statistics(fit.compiled)
    if json:
        needed = {one.table: one.entries for one in fit.needed}
        print_json({**found, "alpha": fit.alpha, "left_out": fit.left_out, "needed": needed})
        return
    columns = ("table", "entries", "key bits", "words", "memory", "blocks")
    rows = [[one[name.replace(" ", "_")] for name in columns] for one in found["tables"]]
    print_table(columns, rows, empty="no entries")
    print()
    many = found["one_big_table"]
    print_pairs(
        [
            ("rules", found["rules"]),
            ("terms", found["terms"]),
            ("entries", found["entries"]),
            ("multicast groups", found["groups"]),
            ("state variables", found["variables"]),
            (
                "one big table",
                f"more than {MOST_COMBINATIONS:,} entries" if many is None else f"{many:,} entries",
            ),
        ]
    )


def _statistics(compiled: Compiled) -> dict[str, Any]:
    import msgspec

    from treecast.middleware.filters.compiler.statistics import one_big_table, sizes

    boxes = [term.box for term in compiled.terms.terms]
    return {
        "rules": compiled.rules,
        "terms": len(compiled.terms.terms),
        "entries": compiled.entries,
        "leaves": len(compiled.leaves),
        "groups": len(compiled.groups),
        "variables": len(compiled.terms.variables),
        "order": [".".join(compiled.schema.fields[place].path) for place in compiled.order],
        "tables": [msgspec.to_builtins(one) for one in sizes(compiled)],
        "one_big_table": one_big_table(boxes, MOST_COMBINATIONS),
    }


# --- reading


def _compiled(path: Path, header: Path, order: str, alpha: int, states: int) -> Compiled:
    """Returns the compiled rules, or prints what is wrong with file, line and column."""
    from treecast.middleware.filters.compiler.compile import compile_rules
    from treecast.middleware.filters.compiler.diagram import DiagramTooLarge
    from treecast.middleware.filters.errors import FilterError
    from treecast.middleware.filters.loosen import loosened

    schema = _schema(header)
    rules = _parsed(path)
    try:
        if alpha > 1:
            rules = loosened(rules, alpha)
        compiled = compile_rules(schema, rules, _order(schema, order), states)
    except FilterError as error:
        raise _at(path, error) from error
    except DiagramTooLarge as error:
        raise CommandError(f"{path}: {error}") from error
    _warn(path, compiled, rules)
    return compiled


def _search(path: Path, header: Path, most: int, seed: int) -> str:
    """Returns the best order that a search finds, as `--order` takes it, and says on stderr what it gains."""
    from random import Random

    from treecast.middleware.filters.compiler.diagram import DiagramTooLarge
    from treecast.middleware.filters.compiler.order import TOO_LARGE, searched
    from treecast.middleware.filters.errors import FilterError

    if not most:
        return ""
    schema = _schema(header)
    try:
        found = searched(schema, _parsed(path), most, Random(seed).shuffle)
    except FilterError as error:
        raise _at(path, error) from error
    except DiagramTooLarge as error:
        raise CommandError(f"{path}: {error}") from error
    order = ",".join(".".join(schema.fields[place].path) for place in found.order)
    before = "too many" if found.before == TOO_LARGE else f"{found.before:,}"
    say(
        f"--order {order}: {found.entries:,} entries instead of {before}; {found.tried} orders tried",
        err=True,
    )
    return order


def _fitted(path: Path, header: Path, order: str, alpha: int, states: int, size: int, refuse: bool) -> Fitted:
    """Returns the rules as they fit tables of `size` entries, and says on stderr how they were widened."""
    from treecast.middleware.filters.compiler.overflow import Fitted, TablesTooSmall, fitted
    from treecast.middleware.filters.compiler.statistics import sizes
    from treecast.middleware.filters.loosen import loosened

    compiled = _compiled(path, header, order, alpha, states)
    if all(one.entries <= size for one in sizes(compiled)):
        return Fitted(compiled, _parsed(path))
    rules = loosened(_parsed(path), alpha)
    try:
        found = fitted(compiled.schema, rules, size, compiled.order, not refuse)
    except TablesTooSmall as error:
        raise CommandError(f"{path}: {error}") from error
    how = (
        f"constraints on {', '.join(found.left_out)} count as true"
        if found.left_out
        else f"numbers are multiples of {found.alpha}"
    )
    for one in found.needed:
        say(f"{path}: {one.table} holds {size:,} entries, and the rules need {one.entries:,}", err=True)
    say(f"{path}: widened so that nobody misses a packet: {how}", err=True)
    return found


def _warn(path: Path, compiled: Compiled, rules: Rules) -> None:
    warnings = compiled.terms.warnings
    for position, text in warnings[:MOST_WARNINGS]:
        line = rules.text.count("\n", 0, position) + 1
        say(f"{path}:{line}: warning: {text}", err=True)
    if len(warnings) > MOST_WARNINGS:
        say(f"{path}: {len(warnings) - MOST_WARNINGS:,} more warnings", err=True)


def _at(path: Path, error: Any) -> CommandError:
    """Returns the message as compilers print it."""
    return CommandError(f"{path}:{error.line}:{error.column}: {error}")


def _parsed(path: Path) -> Rules:
    from treecast.middleware.filters.errors import FilterError
    from treecast.middleware.filters.rules import parse_rules

    try:
        return parse_rules(_read(path))
    except FilterError as error:
        raise _at(path, error) from error


def _schema(path: Path) -> Schema:
    from treecast.middleware.dataplane.p4 import P4Error
    from treecast.middleware.dataplane.subscriptions.header_file import HeaderFileError, read_header_file

    try:
        return read_header_file(_read(path), str(path))
    except P4Error as error:
        say(str(error), err=True)
        raise typer.Exit(FAILED) from error
    except HeaderFileError as error:
        raise CommandError(str(error)) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from error


def _order(schema: Schema, text: str) -> list[int]:
    """Returns the places of all fields: those named first, then the others."""
    from treecast.middleware.filters.compiler.schema import SchemaError
    from treecast.middleware.filters.tree import Field

    try:
        named = [
            schema.field(Field(tuple(word.strip().split(".")))) for word in text.split(",") if word.strip()
        ]
    except SchemaError as error:
        raise CommandError(f"--order: {error}") from error
    if len(set(named)) < len(named):
        raise CommandError("--order names a field twice")
    return [*named, *(place for place in range(len(schema.fields)) if place not in named)]


def _packet(schema: Schema, words: list[str]) -> list[int | None]:
    """Returns the values of a packet in the order of the schema's fields."""
    from treecast.middleware.filters.compiler.bounds import bounds_of
    from treecast.middleware.filters.compiler.schema import SchemaError
    from treecast.middleware.filters.tree import Field, Relation

    values: list[int | None] = [None] * len(schema.fields)
    for word in words:
        name, sign, text = word.partition("=")
        if not sign:
            raise CommandError(f"{word!r} is no FIELD=VALUE")
        constant = int(text, 0) if re.fullmatch(r"\d+|0[xX][0-9a-fA-F]+", text) else text
        try:
            place = schema.field(Field(tuple(name.split("."))))
            field = schema.fields[place]
            bounds = bounds_of(Relation.EQ, constant, field.width, field.pad, name)
        except SchemaError as error:
            raise CommandError(str(error)) from error
        if not bounds:
            raise CommandError(f"{text} does not fit {name}, of {field.width} bits")
        values[place] = bounds[0]
    return values


def _value(value: int | None) -> str:
    """Returns a looked-up value as a number, or as text if it reads as one."""
    if value is None:
        return "-"
    data = value.to_bytes(16).strip(b" \0")
    return plain(data.decode()) if len(data) > 2 and data.isalnum() else str(value)


def _one_line(text: str, position: int) -> str:
    end = text.find("\n", position)
    return plain(text[position : end if end >= 0 else len(text)].strip())

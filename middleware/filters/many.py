"""Many filters at once: which of them a message passes, at a cost that hardly grows with their number.

The filters of a topic share one decision diagram (`compiler.diagram`), over codes of values (`domains`); its
leaves are sets of filters. A message's fields are read once, and each field on the way is looked up once.

Bounds: a diagram has at most 24 fields, the most frequent ones; filters on others are evaluated one by one.
Filters whose diagram needs too much memory are split, in the order of their texts, into several diagrams.
Filters of many boxes, which one subscriber's text of some thousand characters can have, are in no diagram.
Only small diagrams are built where messages wait; others are left to a builder.
Filters that come are evaluated one by one until that has cost as much as a build.
`evaluate` is the reference; a property test holds both equal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence, Set
from typing import Final, Protocol

from treecast.middleware.model.records import Record
from treecast.middleware.model.wishes import ContentFilter, RecordSchema

from .compiler.bounds import ABSENT, Bounds, complement
from .compiler.boxes import Box, TooManyBoxes, merged, normal_form
from .compiler.compile import Remains
from .compiler.diagram import Diagram, DiagramTooLarge, expand, reduce
from .content import ContentReader, StatelessFilter
from .domains import Domain
from .tree import Constraint, Field, Scalar, constraints, fields

MOST_FIELDS: Final = 24
MOST_STATES: Final = 200_000
MOST_MEMBERS: Final = 4_000_000  # in the sets of all states: 32 MB
MOST_BOXES: Final = 64  # of a filter that is in a diagram
_FEWEST: Final = 16  # filters that are not split further

# Diagrams within these bounds take some milliseconds: they are built at once, while nothing else runs.
_SMALL: Final = 500  # filters
_SMALL_TEXT: Final = 16_000  # characters of them together
_SMALL_STATES: Final = 2_000
_SMALL_MEMBERS: Final = 50_000
_WORTH: Final = 64  # evaluations of a filter that take as long as its share of a build

Values = Sequence[Scalar | None]


class _Alone:
    """A filter that is evaluated by itself."""

    def __init__(self, filter: StatelessFilter, places: dict[Field, int]) -> None:
        self.filter = filter
        self._test = filter.test
        self._places = [places[field] for field in fields(filter.tree)]

    def passes(self, values: Values) -> bool:
        return self._test([values[place] for place in self._places])


class FilterDiagram:
    """Some filters as one diagram over `order`, places of fields. Raises DiagramTooLarge."""

    def __init__(
        self,
        filters: Sequence[StatelessFilter],
        boxes: Sequence[list[Box]],
        order: Sequence[int],
        domains: Sequence[Domain],
        states: int,
        members: int,
    ) -> None:
        self._order = order
        self._domains = [domains[place] for place in order]
        remains = Remains(order)
        terms = merged((box, number) for number, one in enumerate(boxes) for box in one)
        roots = sorted({remains.add(box, number) for box, number in terms})
        names = [str(place) for place in order]
        codes = [(ABSENT, domain.high) for domain in self._domains]
        levels = remains.levels(names, codes, len(filters))
        grown = expand(levels, [roots], len(filters), states, members)
        self._leaves = [[filters[number] for number in leaf] for leaf in grown.leaves]
        self._diagram = Diagram(len(grown.leaves))
        (self._root,) = reduce(grown, self._diagram, list(range(len(grown.leaves))), 0)

    @property
    def nodes(self) -> int:
        return len(self._diagram.levels)

    def passing(self, values: Values) -> list[StatelessFilter]:
        """Returns the filters that a message with these values passes; the caller must not change them."""
        diagram, node = self._diagram, self._root
        leaves = diagram.leaves
        while node >= leaves:
            at = node - leaves
            level = diagram.levels[at]
            code = self._domains[level].code(values[self._order[level]])
            node = diagram.targets[at][bisect_right(diagram.cuts[at], code) - 1]
        return self._leaves[node]


class Built:
    """The diagrams of a set of filters, and the filters that are in none.

    `small`: all filters are in one diagram of a few states; raises DiagramTooLarge if they need more.
    """

    def __init__(self, filters: Sequence[StatelessFilter], small: bool = False) -> None:
        self._small = small
        self.filters = frozenset(filters)
        uses = Counter(field for one in filters for field in fields(one.tree))
        self.fields = [field for field, _ in uses.most_common()]
        self.places = {field: place for place, field in enumerate(self.fields)}
        self.diagrams: list[FilterDiagram] = []
        self.alone: list[_Alone] = []
        self._domains = _domains(filters, self.fields)
        found: list[tuple[StatelessFilter, list[Box]]] = []
        for one in sorted(filters, key=_text):
            boxes = self._boxes(one)
            if boxes is None:
                self.alone.append(_Alone(one, self.places))
            else:
                found.append((one, boxes))
        if small:
            self._build(found, _SMALL_STATES, _SMALL_MEMBERS)
        else:
            self._build(found, MOST_STATES, MOST_MEMBERS)

    def _boxes(self, filter: StatelessFilter) -> list[Box] | None:
        """Returns a filter's normal form; None if it is not for a diagram."""
        if any(self.places[field] >= MOST_FIELDS for field in fields(filter.tree)):
            return None
        try:
            return normal_form(filter.tree, self._literal, True, MOST_BOXES, True)
        except TooManyBoxes:
            return None

    def _literal(self, constraint: Constraint, positive: bool) -> tuple[int, Bounds] | None:
        assert isinstance(constraint.attribute, Field)
        place = self.places[constraint.attribute]
        domain = self._domains[place]
        bounds = domain.bounds(constraint.relation, constraint.constant)
        if not positive:
            bounds = complement(bounds, ABSENT, domain.high)
        return None if bounds == (ABSENT, domain.high) else (place, bounds)

    def _build(self, found: list[tuple[StatelessFilter, list[Box]]], states: int, members: int) -> None:
        """Halves have half of the bounds each, so that all attempts together take a few times the first."""
        if len(found) <= 1:
            self.alone += [_Alone(one, self.places) for one, _ in found]
            return
        try:
            self.diagrams.append(self._diagram(found, states, members))
        except DiagramTooLarge:
            if self._small:
                raise
            if len(found) <= _FEWEST:
                self.alone += [_Alone(one, self.places) for one, _ in found]
                return
            middle = len(found) // 2
            self._build(found[:middle], states // 2, members // 2)
            self._build(found[middle:], states // 2, members // 2)

    def _diagram(
        self, found: list[tuple[StatelessFilter, list[Box]]], states: int, members: int
    ) -> FilterDiagram:
        # Equality first: it parts the filters, so that what follows is small.
        ranges: Counter[int] = Counter()
        for _, boxes in found:
            for box in boxes:
                for place, bounds in box:
                    ranges[place] += len(bounds) > 2 or bounds[1] - bounds[0] > 1
        order = sorted({place for _, boxes in found for box in boxes for place, _ in box}, key=_by(ranges))
        filters, forms = [one for one, _ in found], [boxes for _, boxes in found]
        return FilterDiagram(filters, forms, order, self._domains, states, members)


def _by(ranges: Counter[int]) -> Callable[[int], tuple[int, int]]:
    return lambda place: (ranges[place], place)


def _text(filter: StatelessFilter) -> str:
    return filter.text


def _domains(filters: Sequence[StatelessFilter], wanted: Sequence[Field]) -> list[Domain]:
    found: dict[Field, list[Constraint]] = {field: [] for field in wanted}
    for one in filters:
        for constraint in constraints(one.tree):
            if isinstance(constraint.attribute, Field):
                found[constraint.attribute].append(constraint)
    return [Domain(found[field]) for field in wanted]


class Building(Protocol):
    """A build that is done elsewhere, as futures are."""

    def done(self) -> bool: ...

    def result(self) -> Built: ...


Builder = Callable[[Sequence[StatelessFilter]], Building]


class ManyFilters:
    """Filters that come and go, of the messages of a topic. Equal filters are one. `version` rises with each
    change; `builds` counts diagrams' builds, for tests. `builder`: builds large diagrams; None: they are
    built at once. While it works, and if it fails, filters are evaluated one by one.
    """

    def __init__(self, builder: Builder | None = None) -> None:
        self._builder = builder
        self._building: Building | None = None
        self.version = 0
        self.builds = 0
        self._filters: set[StatelessFilter] = set()
        self._built = Built(())
        self._gone: Set[StatelessFilter] = frozenset()
        self._reader = ContentReader(())
        self._young: list[_Alone] = []  # in no diagram yet
        self._young_reader = ContentReader(())
        self._spent = 0  # evaluations of young filters since the last build
        self._large = _SMALL + 1  # so many filters had no small diagram

    def __len__(self) -> int:
        return len(self._filters)

    @property
    def diagrams(self) -> list[FilterDiagram]:
        return self._built.diagrams

    def become(self, filters: Collection[ContentFilter]) -> int:
        """Makes these the filters, and returns the new version."""
        wanted = {one for one in filters if isinstance(one, StatelessFilter)}
        assert len(wanted) == len(filters)
        if wanted != self._filters:
            self._change(wanted)
            self.version += 1
        return self.version

    def _change(self, wanted: set[StatelessFilter]) -> None:
        self._filters = wanted
        self._divide()
        if len(self._gone) > len(wanted) + _FEWEST:
            self._build_soon()

    def _divide(self) -> None:
        """Notes which filters the diagrams lack, and which of theirs are gone."""
        self._gone = self._built.filters - self._filters
        young = self._filters - self._built.filters
        read = tuple({field: None for one in young for field in fields(one.tree)})
        places = {field: place for place, field in enumerate(read)}
        self._young = [_Alone(one, places) for one in young]
        self._young_reader = ContentReader(read)

    def build(self) -> None:
        """Builds the diagrams of the present filters."""
        self._take(Built(tuple(self._filters)))

    def _build_soon(self) -> None:
        if self._builder is None:
            self.build()
        elif self._building is not None:
            if self._building.done():
                self._take_result(self._building)
        elif not self._build_small():
            self._building = self._builder(tuple(self._filters))

    def _build_small(self) -> bool:
        """Builds a small diagram at once. Returns whether it is one."""
        count = len(self._filters)
        if (
            count > _SMALL
            or count >= self._large
            or sum(len(one.text) for one in self._filters) > _SMALL_TEXT
        ):
            return False
        try:
            self._take(Built(tuple(self._filters), small=True))
        except DiagramTooLarge:
            self._large = count
            return False
        return True

    def _take_result(self, building: Building) -> None:
        self._building = None
        try:
            built = building.result()
        except Exception:  # as MemoryError: the filters stay as they are, and are evaluated one by one
            self._spent = 0
            return
        self._take(built)

    def _take(self, built: Built) -> None:
        """Goes on with other diagrams. The filters may have changed while they were built."""
        self._built = built
        self._reader = ContentReader(built.fields)
        self._divide()
        self._spent = 0
        self.builds += 1

    def passing(
        self, topic: str, record: Record, schema: RecordSchema | None = None
    ) -> list[StatelessFilter] | None:
        """Returns the filters that a message passes, each once, in no order; None if it does not meet its
        topic's schema."""
        if self._young:
            self._spent += len(self._young)
            if self._spent > _WORTH * len(self._filters):
                self._build_soon()
        found: list[StatelessFilter] = []
        values = self._reader.read(topic, record, schema)
        if values is None:
            return None
        for diagram in self._built.diagrams:
            found += diagram.passing(values)
        found += [one.filter for one in self._built.alone if one.passes(values)]
        if self._gone:
            found = [one for one in found if one not in self._gone]
        if self._young:
            read = self._young_reader.read(topic, record, schema)
            if read is not None:
                found += [one.filter for one in self._young if one.passes(read)]
        return found

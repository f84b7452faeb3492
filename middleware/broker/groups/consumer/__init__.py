"""Groups of the new protocol (KIP-848), of type consumer: pure, without clock or I/O.

`state` has the state machines of group and member as tables. `group` is one group, `members` its members and
their partitions, `reconcile` one member's next step, `assignors` the target assignment. `patterns` gives the
topics that regular expressions match (`regex`). `classic` serves members of the classic protocol, `embedded`
reads their subscriptions, `migration` changes a group from one protocol to the other. `records` defines the
rows on disk.
"""

"""Groups of the new protocol (KIP-848), of type consumer: pure, without clock or I/O.

`state` has the state machines of group and member as tables. `group` is one group, `members` who is in
it and holds what, `reconcile` one member's next step, `assignors` who shall have what. `patterns` are
the topics that regular expressions match (`regex`). `classic` serves members of the classic protocol,
`embedded` reads what these say of themselves, `migration` goes from one protocol to the other. `records`
are its rows on disk.
"""

"""Switches that follow stacks of labels, and the trees that they store.

| module | what it is |
| --- | --- |
| `states` | what a switch of each scheme holds, as a value: entries, groups, clone sessions |

The programs are in p4/, one a scheme; names in `states` are theirs.
"""

"""The network controller of SRv6: a tree for each set of receivers, from replication segments on routers.

| module | what it is |
| --- | --- |
| `description` | a network of routers as an operator describes it |
| `routers` | what a router holds, with the numbers that are allotted to segments and branches |
| `manager` | from one set of trees to the next, make before break |
| `publishers` | daemons: whom they send to, and which SIDs they are told |
| `__main__` | the command |
"""

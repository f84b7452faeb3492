"""The network controller of SRv6: a tree for each set of receivers, from replication segments on routers.

| module | what it is |
| --- | --- |
| `description` | a network of routers as an operator describes it |
| `routers` | what a router holds, with the numbers that are allotted to segments and branches |
| `manager` | from one set of trees to the next, make before break |
| `probing` | probes of links, led by SIDs |
| `traffic` | which links trees leave because of their load |
| `advised` | the pipeline's advice: which links trees avoid |
| `publishers` | daemons: whom they send to, and which SIDs they are told |
| `controller` | looks at receivers, links and routers, and has the manager follow them |
| `__main__` | the command |
"""

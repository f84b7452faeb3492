"""Hosts, routers and bridges as network namespaces of this machine, joined by links that can be impaired.

| module        | content                                                                      |
| ------------- | ---------------------------------------------------------------------------- |
| `description` | the parts of a lab; read from TOML (pure)                                     |
| `plan`        | addresses, routes, and the steps that build the lab (pure)                    |
| `impairment`  | the effects of a bad link on frames, given `now` and a seeded generator (pure) |
| `messages`    | requests to a relay and its answers                                           |
| `relay`       | the process between two interfaces that applies an impairment                 |
| `namespaces`  | network namespaces: creation, entry, removal                                  |
| `enter`       | the program that starts a command inside a namespace                          |
| `execute`     | execution of a plan's steps                                                   |
| `state`       | the record of a lab, so that anybody can remove it                            |
| `lab`         | a running lab: commands, links, counters                                      |
"""

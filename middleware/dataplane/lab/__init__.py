"""Hosts, routers and bridges as network namespaces of this machine, joined by links that can be impaired.

| module        | what it is                                                                   |
| ------------- | ---------------------------------------------------------------------------- |
| `description` | what a lab consists of; read from TOML (pure)                                 |
| `plan`        | addresses, routes, and the steps that build the lab (pure)                    |
| `impairment`  | what a bad link does to frames, given `now` and a seeded generator (pure)     |
| `messages`    | what a relay is asked and answers                                             |
| `relay`       | the process between two interfaces that applies an impairment                 |
| `namespaces`  | network namespaces: made, entered, removed                                    |
| `enter`       | the program that starts a command inside a namespace                          |
| `execute`     | carries out the steps of a plan                                               |
| `state`       | what is written down about a lab, so that anybody can remove it               |
| `lab`         | a lab that is up: commands, links, counters                                   |
"""

"""Links between switches that carry nothing, and switches that are not reached: for all kinds of switches.

| module | what it is |
| --- | --- |
| `probes` | which links carry nothing, by packets that a switch's controller sends and another hears |
| `sessions` | a switch's P4Runtime session, opened again when it was lost |
| `ways` | links towards hosts, around links that are down, that lead in no circle |
| `watch` | probes round after round, and sessions that are opened again |

How a probe is led over a link is the affair of each kind: `segments.probing` by SIDs, `trees.probing` by
labels, `stare_switch.network` by STARE's requests.
"""

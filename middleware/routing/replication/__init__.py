"""Replication segments for SRv6 (RFC 9524): trees of groups that share the subtrees behind a node.

After "SNAPS: Seamless Network-Assisted Publish-Subscribe" (Nokia Bell Labs); deviations and their reasons are
in docs/decisions/2026-11-24-replication-segments.md.

| module | content |
| --- | --- |
| `paths` | unique shortest paths; the rendezvous point |
| `shapes` | trees as copying nodes: direct, by a rendezvous point, on a spanning tree, by gateways |
| `segments` | the segments on nodes, found by the subtree behind them, with reference counts |
| `forest` | the trees of all groups, and changes between them |
| `changes` | the steps of a change, make before break |
| `engineering` | trees that leave full links |
| `ways` | the paths that routers use by themselves, and SIDs that keep packets on others |
| `candidates` | trials of links to avoid, judged by the busiest link |
| `pinning` | segment lists that keep a packet on a path |
| `delivery` | a packet through segments, node by node |
| `algorithm1` | the paper's algorithm as printed, with or without its flaws |
"""

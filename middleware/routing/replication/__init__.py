"""Replication segments for SRv6 (RFC 9524): trees of groups that share what lies behind a node.

After "SNAPS: Seamless Network-Assisted Publish-Subscribe" (Nokia Bell Labs); what is read otherwise and why
is in docs/decisions/2026-11-24-replication-segments.md.

| module | what it is |
| --- | --- |
| `paths` | shortest paths of which there is one only; the rendezvous point |
| `shapes` | trees as places that copy: direct, by a rendezvous point, on a spanning tree, by gateways |
| `segments` | what nodes hold, found by what is behind it, with references counted |
| `forest` | the trees of all groups, and how one becomes another |
| `changes` | the steps of that, make before break |
| `engineering` | trees that leave full links |
| `pinning` | segment lists that keep a packet on a way |
| `delivery` | a packet through segments, node by node |
| `algorithm1` | the paper's algorithm as it is written, with its flaws or without |
"""

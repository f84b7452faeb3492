"""The harness: peers, workloads, measurements, rounds, reports. Knows no protocol."""

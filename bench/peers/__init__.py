"""The peers: servers that the harness starts, queries and stops."""

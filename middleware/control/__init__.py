"""The coordinator: members of the cluster, and ownership. See docs/coordinator.md."""

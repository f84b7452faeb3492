"""The data plane on one machine: for now the lab, hosts and routers as network namespaces."""

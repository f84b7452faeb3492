"""The packet-subscription language (Camus, Fig. 1): parsed, written and evaluated. Pure."""

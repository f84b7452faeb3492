"""The packet-subscription language (Camus, Fig. 1): parser, printer and evaluation. Pure."""

"""Values: names, identities, records, schemas, counters, errors. Imports no other room of Treecast."""

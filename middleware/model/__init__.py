"""Values: names, identities, records, schemas, counters, errors. Imports nothing else of Treecast."""

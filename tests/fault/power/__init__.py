"""Power losses under load on LazyFS: what each fsync policy promises, for every store of a daemon."""

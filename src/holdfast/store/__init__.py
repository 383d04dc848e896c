"""The embedded object store: revisions, watches, SQLite. May import `api` only."""

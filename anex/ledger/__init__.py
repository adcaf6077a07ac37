"""Money: append-only double entry in Postgres. Balances are kept by the database's own trigger, never written by code."""

"""Settings, model catalogs, logging, wiring and the one-machine stack; the only reader of the environment."""

"""The HTTP door: schema in, one core call, schema out. Rules and queries live in ``anex``."""

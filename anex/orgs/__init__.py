"""Organizations and their API keys: who is asking, and for whom."""

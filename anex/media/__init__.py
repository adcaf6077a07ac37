"""Media in rows: which format a part carries, how long and how large it is, what that makes in tokens, and how it is had."""

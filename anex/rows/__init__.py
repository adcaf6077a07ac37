"""The rows of an input: from bytes to checked rows, and from an engine's answer to a line of the result.

Pure code: bytes in, rows or faults out. Nothing here reads an object store, a database, a clock or a setting.
"""

"""The mathematics of an estimate: which rows are sampled, the output cap, the cost's bound, how work is cut.

Numbers in, numbers out: no I/O, no clock, no randomness of its own.
"""

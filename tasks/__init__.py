"""The Celery door: named tasks that carry ids and make one core call each.

A message is a doorbell, never the truth: it may be lost, late or twice (ARCHITECTURE.md, rule 1).
"""

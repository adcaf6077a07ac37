"""What the engine takes of the laya package beside its public functions, as JSON. Runs in the engine's environment."""

from __future__ import annotations

import inspect
import json
import sys

import laya
from laya.agent import Agent

PRIVATE = ("_check_question", "_to_internal", "_encode_state")

if __name__ == "__main__":
    found = {name: list(inspect.signature(getattr(Agent, name)).parameters) for name in PRIVATE}
    fallback = [Agent.cpu_fallback_count, Agent.last_fallback_reason]
    sys.stdout.write(json.dumps({"version": laya.__version__, **found, "fallback": fallback}))

"""Fixtures that all tests may ask for; each lives with the tool that it hands out."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = (
    "tests.support.servers",
    "tests.support.spine_fixtures",
    "tests.support.served_api",
    "tests.support.cli",
    "tests.support.contract_bench",
)

# No test asserts a duration: on a busy machine an example's first run is slow. Seeds are printed; failures replay.
settings.register_profile("anex", deadline=None, print_blob=True)
settings.load_profile("anex")

"""What only tests of this folder ask for."""

from __future__ import annotations

import pytest

from tests.support.clips import ClipShelf, open_shelf


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> ClipShelf:
    """Return real clips, each made when it is first asked for."""
    return open_shelf(tmp_path_factory.mktemp("clips"))

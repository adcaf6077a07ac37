"""The regions in which payload may rest; each has its own bucket, broker queues and workers."""

from __future__ import annotations

from typing import Literal, get_args

Region = Literal["world", "eu"]

REGIONS: tuple[Region, ...] = get_args(Region)

"""Where payload may rest: which region a new input or job belongs to, and whether this installation serves it.

An API process serves one region. What another region keeps is answered with that region's name: the client can go there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from anex.errors import AnexError
from anex.orgs.organizations import get_organization

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.regions import Region
    from anex.services import Services

Noun = Literal["input", "job"]

_NAMES: dict[str, str] = {"eu": "EU", "world": "world"}


class RegionForbidden(AnexError):
    """The organization may not keep data in the region that it asked for."""

    code = "region_not_enabled"


class RegionElsewhere(AnexError):
    """Another region's API serves this; ``region`` names it."""

    code = "wrong_region"

    def __init__(self, noun: Noun, region: str) -> None:
        super().__init__(f"this {noun} is stored in the {_NAMES[region]} region")
        self.region = region


def choose_region(
    services: Services, transaction: Transaction, org_id: str, asked: Region | None, noun: Noun
) -> Region:
    """Return the region of a new input or job: what was ``asked``, or the organization's default.

    Raises ``RegionForbidden`` for "eu" without EU data routing, ``RegionElsewhere`` when this API doesn't serve it.
    """
    organization = get_organization(transaction, org_id)
    if asked == "eu" and not organization.eu_routing:
        raise RegionForbidden(
            "EU data routing is not enabled for this organization. Contact us to enable it."
        )
    region: Region = asked or ("eu" if organization.eu_routing else "world")
    require_region(services, region, noun)
    return region


def require_region(services: Services, region: str, noun: Noun) -> None:
    """Raise ``RegionElsewhere`` unless this API serves ``region``."""
    if region != services.region:
        raise RegionElsewhere(noun, region)

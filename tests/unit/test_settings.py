"""Settings: what is read, what wins, and that every fault is told without a secret."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from anex.services import Limits, Timings
from config.environment import SettingsInvalid
from config.settings import CATALOGS, Settings, load_settings


def load(tmp_path: Path, **variables: str) -> Settings:
    named = {f"ANEX_{name}": value for name, value in variables.items()}
    return load_settings({"ANEX_DATA_DIR": str(tmp_path), "PATH": "/bin", **named})


def faults_of(tmp_path: Path, **variables: str) -> list[str]:
    with pytest.raises(SettingsInvalid) as caught:
        load(tmp_path, **variables)
    return caught.value.faults


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = load_settings({})

    assert settings.data_dir == Path(".anex").absolute()
    assert settings.catalog_path == CATALOGS / "models.toml"
    assert settings.region == "world"
    assert settings.s3.bucket == "anex-world"
    assert settings.timings == Timings()
    assert settings.limits == Limits()
    assert settings.models_offered is None
    assert not settings.allow_fake_engine


def test_values_are_parsed(tmp_path: Path) -> None:
    keys = [Fernet.generate_key().decode() for _ in range(2)]
    settings = load(
        tmp_path,
        DATABASE_API_URL="postgresql://anex_api:pw@db/anex",
        S3_ENDPOINT="http://127.0.0.1:9000",
        SECRET_KEY=", ".join(keys),
        REGION="eu",
        MODELS_OFFERED="qwen3-14b, laya",
        ALLOW_FAKE_ENGINE="1",
        API_PORT="8080",
        LOG_FORMAT="json",
    )

    assert settings.database_api_url == "postgresql://anex_api:pw@db/anex"
    assert settings.s3.public_endpoint == "http://127.0.0.1:9000"
    assert settings.s3.bucket == "anex-eu"
    assert settings.secret_keys == tuple(keys)
    assert settings.models_offered == frozenset({"qwen3-14b", "laya"})
    assert settings.allow_fake_engine
    assert settings.api_port == 8080
    assert settings.log_format == "json"


@pytest.mark.parametrize(
    ("bag", "name"),
    [("timings", f.name) for f in fields(Timings)] + [("limits", f.name) for f in fields(Limits)],
)
def test_every_timing_and_limit_has_a_variable(tmp_path: Path, bag: str, name: str) -> None:
    # 31 lies above the default heartbeat, so that a lease of 31 seconds is a legal one.
    variables = {name.upper(): "31", "LEASE_SECONDS": "31"} | (
        {"HEARTBEAT_SECONDS": "31", "LEASE_SECONDS": "32"} if name == "heartbeat_seconds" else {}
    )

    assert getattr(getattr(load(tmp_path, **variables), bag), name) in {31, (31.0,)}


def test_a_schedule_is_a_list_of_numbers(tmp_path: Path) -> None:
    loaded = load(tmp_path, DELIVERY_RETRY_SECONDS="0.5, 2,30")

    assert list(loaded.timings.delivery_retry_seconds) == [0.5, 2, 30]
    assert "separated by commas" in faults_of(tmp_path, DELIVERY_RETRY_SECONDS="5,0")[0]


def test_fractions_are_taken_where_the_field_is_one(tmp_path: Path) -> None:
    assert load(tmp_path, SWEEP_SECONDS="0.2").timings.sweep_seconds == pytest.approx(0.2)
    assert "0.2" in faults_of(tmp_path, INPUT_MAX_BYTES="0.2")[0]


def test_a_bare_catalog_name_is_one_that_ships_and_a_path_is_a_path(tmp_path: Path) -> None:
    assert load(tmp_path, CATALOG="models.local.toml").catalog_path == CATALOGS / "models.local.toml"
    assert load(tmp_path, CATALOG="./my.toml").catalog_path == Path("my.toml")


def test_all_faults_are_told_at_once_each_with_variable_value_and_expectation(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, REGION="mars", API_PORT="70000", SWEEP_SECONDS="-1", LOG_LEVEL="loud")

    assert len(faults) == 4
    assert "ANEX_REGION holds 'mars'; expected is one of world, eu" in faults
    assert "ANEX_API_PORT holds '70000'; expected is a port from 1 to 65535" in faults
    assert "ANEX_SWEEP_SECONDS holds '-1'; expected is a number above 0" in faults


@pytest.mark.parametrize("number", ["nan", "inf", "0", "1e999", "ten"])
def test_a_duration_is_finite_and_above_zero(tmp_path: Path, number: str) -> None:
    assert faults_of(tmp_path, SWEEP_SECONDS=number)[0].startswith("ANEX_SWEEP_SECONDS holds")


def test_an_unknown_variable_is_refused_with_the_name_that_was_meant(tmp_path: Path) -> None:
    assert faults_of(tmp_path, LEASE_SECOND="5") == [
        "ANEX_LEASE_SECOND is not a setting; did you mean ANEX_LEASE_SECONDS?"
    ]


def test_faults_never_show_a_secret(tmp_path: Path) -> None:
    faults = faults_of(
        tmp_path,
        DATABASE_OWNER_URL="mysql://u:hunter2@db",
        REDIS_URL="hunter2",
        SECRET_KEY="hunter2",
        S3_ENDPOINT="hunter2@host",
    )

    assert len(faults) == 4
    assert "hunter2" not in "\n".join(faults)


def test_a_repr_never_shows_a_secret(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        DATABASE_OWNER_URL="postgresql://u:hunter2@db",
        DATABASE_API_URL="postgresql://u:hunter2@db",
        DATABASE_WORK_URL="postgresql://u:hunter2@db",
        REDIS_URL="redis://:hunter2@cache",
        S3_ACCESS_KEY="hunter2",
        S3_SECRET_KEY="hunter2",
        SECRET_KEY=(key := Fernet.generate_key().decode()),
    )

    assert "hunter2" not in repr(settings)
    assert key not in repr(settings)


def test_a_fernet_key_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    assert faults_of(tmp_path, SECRET_KEY="c2hvcnQ=")[0].startswith("ANEX_SECRET_KEY holds")


def test_the_stack_file_lies_under_the_environment(tmp_path: Path) -> None:
    (tmp_path / "stack.env").write_text(
        "# written by the stack\n\nANEX_REDIS_URL=redis://:a=b@127.0.0.1:1\nANEX_S3_BUCKET=of-file\n"
    )
    settings = load(tmp_path, S3_BUCKET="of-environment")

    assert settings.redis_url == "redis://:a=b@127.0.0.1:1"
    assert settings.s3.bucket == "of-environment"


def test_a_variable_set_to_nothing_counts_as_not_set(tmp_path: Path) -> None:
    (tmp_path / "stack.env").write_text("ANEX_S3_BUCKET=of-file\n")

    assert load(tmp_path, S3_BUCKET="", REGION="").s3.bucket == "of-file"


def test_a_broken_line_of_the_stack_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "stack.env").write_text("ANEX_REGION=eu\nnonsense\n")

    assert faults_of(tmp_path)[0].endswith("stack.env, line 2: expected is KEY=VALUE")


def test_a_heartbeat_not_below_the_lease_is_refused(tmp_path: Path) -> None:
    assert "ANEX_HEARTBEAT_SECONDS" in faults_of(tmp_path, LEASE_SECONDS="1")[0]


def test_require_names_the_variable_and_both_fixes(tmp_path: Path) -> None:
    settings = load(tmp_path)
    with pytest.raises(SettingsInvalid, match=r"ANEX_S3_ENDPOINT is not set: set it, or run `anex up`"):
        settings.require("s3.endpoint")

    assert load(tmp_path, REDIS_URL="redis://h").require("redis_url") == "redis://h"

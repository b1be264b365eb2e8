"""Whatever cannot be meant is refused at the start, by the name of its variable."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from otp_service.embedded import default_state_dir
from tests.house.fresh_settings import REQUIRED, read_settings


def lane(**cells: Any) -> str:
    """LANE_DEFAULTS with some cells of one lane."""
    return json.dumps({"otp": cells})


def pools(**rows: Any) -> str:
    """POOLS_BY_PREFIX with rows beside the one that must be there."""
    return json.dumps({"": ["es"], **rows})


def public(read: dict[str, Any]) -> dict[str, Any]:
    """What Django takes for settings."""
    return {name: value for name, value in read.items() if name[0].isupper() and name.isupper()}


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """A production: all that is required is set, and the state folder is empty."""
    return {**REQUIRED, "OTP_STATE_DIR": str(tmp_path)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, "banana")
            for name in (
                *("DEBUG", "BEHIND_TLS_PROXY", "OTP_EMBEDDED", "COUNT_ONLY_SENDER_FAULTS", "RELAY_BEARER_ALLOWED"),
                *("FAILED_IN_ROW", "RESET_DELIVERIES", "RESET_DELIVERIES_PREHEATING", "LEASE_S", "RECEIPT_WAIT_S"),
                *("SEND_INTERVAL_MINUTES", "COOLDOWN_LADDER", "RESET_RULE", "LOG_LEVEL", "LOG_FORMAT"),
                *("DATABASE_URL", "REDIS_URL", "HASH_KEYS", "FIELD_ENCRYPTION_KEYS", "LANE_DEFAULTS"),
                "POOLS_BY_PREFIX",
            )
        ),
        ("DEBUG", "2"),
        ("DEBUG", "tru"),
        ("FAILED_IN_ROW", "2.7"),
        ("FAILED_IN_ROW", "0"),
        ("FAILED_IN_ROW", "101"),
        ("FAILED_IN_ROW", "nan"),
        ("RESET_DELIVERIES", "inf"),
        ("LEASE_S", "nan"),
        ("LEASE_S", "0.9"),
        ("RECEIPT_WAIT_S", "inf"),
        ("RECEIPT_WAIT_S", "0"),
        ("RELEASE_PAUSE_S", "-1"),
        ("IDEMPOTENCY_KEY_LIFE_S", "172799"),
        ("SEND_INTERVAL_MINUTES", "8"),
        ("SEND_INTERVAL_MINUTES", "8-12-14"),
        ("SEND_INTERVAL_MINUTES", "12-8"),
        ("SEND_INTERVAL_MINUTES", "0-8"),
        ("SEND_INTERVAL_MINUTES", "8-inf"),
        ("SEND_INTERVAL_MINUTES", "nan-12"),
        ("SEND_INTERVAL_MINUTES", "8-10081"),
        *(("COOLDOWN_LADDER", text) for text in ("60", "60-120-180", "120-60", "0-10", "60-120,", "a-b", "1.5-2")),
        *(("EXTENSION_MINUTES", text) for text in ("55", "55.5-70", "70-55", "0-5")),
        *(("PREHEAT_PLAN", text) for text in ("4;8", "4,,8", "0,4", "-1", "4,1001", "4.5")),
        *(("PREHEAT_HOURS", text) for text in ("22-8", "8", "8-25", "8-8", "-1-8", "8:00-22:00")),
        *(("WARMUP_TEXTS", text) for text in ("Hello", "[]", '{"a": 1}', '[""]', "[5]", '["Your code is 12"]')),
        ("WARMUP_TEXTS", json.dumps(["a" * 201])),
        *(("REGION_TIME_ZONES", text) for text in ('{"es": "Madrid"}', '{"es": 5}', '["es"]', '{"": ""}')),
        *(("HEALTH_SPEED", text) for text in ("0", "0.5", "61", "fast", "60")),
        *(("STORM_BRAKE", text) for text in ("on", "true")),
        *(("STORM_ON_SHARE", text) for text in ("0", "1.1", "30%")),
        *(("PREHEAT_CONFIRMED_SHARE", text) for text in ("-0.1", "1.1")),
        *(("FAILURE_RATE_LIMIT", text) for text in ("-0.1", "1.1")),
        *(("MAX_EXTENSIONS", text) for text in ("-1", "101", "1.5")),
        *(("FAIL_OPEN_LIMIT", text) for text in ("0", "101")),
        *(("OTP_LIMITS_1_HOUR", text) for text in ("-1", "1.5")),
        *(("VERDICT_DELAY_S", text) for text in ("-1", "soon")),
        ("DATABASE_URL", "mysql://db.example/otp"),
        ("DATABASE_URL", "sqlite:///otp.db"),
        ("DATABASE_URL", "postgres:/db.example/otp"),
        ("REDIS_URL", "http://redis.example/0"),
        ("REDIS_URL", "redis.example:6379"),
        ("LANE_DEFAULTS", "[]"),
        ("LANE_DEFAULTS", '{"otp": 5}'),
        ("LANE_DEFAULTS", '{"fax": {"ttl_s": 300}}'),
        ("LANE_DEFAULTS", lane(ttl=300)),
        ("LANE_DEFAULTS", lane(ttl_s="300")),
        ("LANE_DEFAULTS", lane(ttl_s=300.5)),
        ("LANE_DEFAULTS", lane(ttl_s=True)),
        ("LANE_DEFAULTS", lane(max_routes=0)),
        ("LANE_DEFAULTS", lane(max_routes=11)),
        ("LANE_DEFAULTS", lane(on_unknown="drop")),
        ("DUPLICATE_BUDGET", "-1"),
        ("DUPLICATE_BUDGET", "6"),
        ("DUPLICATE_BUDGET", "1.5"),
        ("LANE_DEFAULTS", lane(ttl_s=None)),
        ("LANE_DEFAULTS", lane(ttl_s=0)),
        ("LANE_DEFAULTS", lane(ttl_s=604_801)),
        ("LANE_DEFAULTS", lane(ttl_s=float("nan"))),
        ("LANE_DEFAULTS", lane(ttl_s=29)),
        ("LANE_DEFAULTS", lane(min_ttl_s=0)),
        ("LANE_DEFAULTS", lane(min_ttl_s=301)),
        ("LANE_DEFAULTS", lane(first_attempt_within_s=0)),
        ("LANE_DEFAULTS", lane(first_attempt_within_s=1.5)),
        ("LANE_DEFAULTS", lane(on_late_first="drop")),
        ("LANE_DEFAULTS", lane(on_late_first=["send"])),
        ("LANE_DEFAULTS", lane(on_late_first=None)),
        ("LANE_DEFAULTS", lane(max_attempts=0)),
        ("LANE_DEFAULTS", lane(max_attempts=11)),
        ("LANE_DEFAULTS", lane(max_attempts=2.5)),
        ("POOLS_BY_PREFIX", '{"+34": ["es"]}'),
        ("POOLS_BY_PREFIX", '["es"]'),
        ("POOLS_BY_PREFIX", pools(**{"34": ["es"]})),
        ("POOLS_BY_PREFIX", pools(**{"+": ["es"]})),
        ("POOLS_BY_PREFIX", pools(**{"+3a": ["es"]})),
        ("POOLS_BY_PREFIX", pools(**{"+34": "es"})),
        ("POOLS_BY_PREFIX", pools(**{"+34": []})),
        ("POOLS_BY_PREFIX", pools(**{"+34": [34]})),
        ("POOLS_BY_PREFIX", pools(**{"+34": [""]})),
        ("POOLS_BY_PREFIX", pools(**{"+34": ["ES"]})),
        ("POOLS_BY_PREFIX", pools(**{"+34": ["e s"]})),
        ("POOLS_BY_PREFIX", pools(**{"+34": ["es1234567"]})),
        ("POOLS_BY_PREFIX", pools(**{"+34": ["es", "es"]})),
    ],
)
def test_refuses(nowhere: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"^{name}\b"):
        read_settings(nowhere | {name: value})


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_refuses_to_start_without(nowhere: dict[str, str], name: str, how: str) -> None:
    given = {key: value for key, value in nowhere.items() if key != name}
    with pytest.raises(ImproperlyConfigured, match=rf"^{name} is not set"):
        read_settings(given if how == "missing" else given | {name: ""})


@pytest.mark.parametrize(
    ("name", "value", "setting", "expected"),
    [
        *(("DEBUG", text, "DEBUG", True) for text in ("true", "True", "1", "yes", "on")),
        *(("OTP_EMBEDDED", text, "EMBEDDED", False) for text in ("false", "0", "no", "OFF")),
        ("COUNT_ONLY_SENDER_FAULTS", "no", "COUNT_ONLY_SENDER_FAULTS", False),
        ("FAILED_IN_ROW", "1", "FAILED_IN_ROW", 1),
        ("FAILED_IN_ROW", "100", "FAILED_IN_ROW", 100),
        ("LEASE_S", "1", "LEASE", timedelta(seconds=1)),
        ("RELEASE_PAUSE_S", "0", "RELEASE_PAUSE", timedelta()),
        ("RECEIPT_WAIT_S", "0.5", "RECEIPT_WAIT", timedelta(seconds=0.5)),
        ("SEND_INTERVAL_MINUTES", "0.5-10080", "SEND_INTERVAL_MINUTES", (0.5, 10_080.0)),
        ("COOLDOWN_LADDER", "five_step", "COOLDOWN_LADDER", "five_step"),
        ("COOLDOWN_LADDER", "1-2, 3-3", "COOLDOWN_LADDER", "1-2, 3-3"),
        ("EXTENSION_MINUTES", "5-5", "EXTENSION_MINUTES", (5, 5)),
        ("PREHEAT_PLAN", "1, 2", "PREHEAT_PLAN", (1, 2)),
        ("PREHEAT_HOURS", "0-24", "PREHEAT_HOURS", (0, 24)),
        ("WARMUP_TEXTS", '["Hello!"]', "WARMUP_TEXTS", ("Hello!",)),
        ("ALLOWED_HOSTS", "a.example, b.example,", "ALLOWED_HOSTS", ["a.example", "b.example"]),
        ("DATABASE_URL", "postgresql://db.example/otp", "DATABASE_URL", "postgresql://db.example/otp"),
        ("REDIS_URL", "rediss://redis.example:6379/0", "REDIS_URL", "rediss://redis.example:6379/0"),
        (
            "REDIS_URL",
            "unix:///run/redis.sock?db=0",
            "CELERY_BROKER_URL",
            "redis+socket:///run/redis.sock?virtual_host=0",
        ),
        ("POOLS_BY_PREFIX", pools(**{"+34": ["a1234567"]}), "POOLS_BY_PREFIX", {"": ["es"], "+34": ["a1234567"]}),
    ],
)
def test_takes(nowhere: dict[str, str], name: str, value: str, setting: str, expected: object) -> None:
    assert read_settings(nowhere | {name: value})[setting] == expected


@pytest.mark.parametrize(
    "cells",
    [
        {"ttl_s": 30},
        {"ttl_s": 604_800},
        {"min_ttl_s": 300},
        {"min_ttl_s": 1, "ttl_s": 1},
        {"first_attempt_within_s": None},
        {"first_attempt_within_s": 1},
        {"on_late_first": "expire"},
        {"max_attempts": 1},
        {"max_attempts": 10},
    ],
)
def test_takes_cells_of_a_lane_and_leaves_the_others(nowhere: dict[str, str], cells: dict[str, Any]) -> None:
    before, after = (read_settings(nowhere | more)["LANE_DEFAULTS"] for more in ({}, {"LANE_DEFAULTS": lane(**cells)}))
    assert after == before | {"otp": before["otp"] | cells}


def test_an_empty_variable_is_as_one_that_is_not_set(nowhere: dict[str, str]) -> None:
    names = (
        *("DEBUG", "OTP_EMBEDDED", "FAILED_IN_ROW", "LEASE_S", "SEND_INTERVAL_MINUTES", "RESET_RULE", "LOG_FORMAT"),
        *("LANE_DEFAULTS", "POOLS_BY_PREFIX", "ALLOWED_HOSTS", "STATIC_ROOT"),
    )
    assert public(read_settings(nowhere | dict.fromkeys(names, ""))) == public(read_settings(nowhere))


def test_an_address_with_a_password_is_not_shown(nowhere: dict[str, str]) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        read_settings(nowhere | {"DATABASE_URL": "mysql://user:hunter2@db.example/otp"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("folder", ["", "~/otp-state", "relative/../state"])
def test_state_folder_is_the_one_that_the_embedded_servers_use(nowhere: dict[str, str], folder: str) -> None:
    given = {"OTP_STATE_DIR": folder, "HOME": str(Path.home())}
    assert read_settings(nowhere | given)["STATE_DIR"] == default_state_dir(given)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("RELEASE_PAUSE", timedelta(seconds=10)), ("HOST_OFFLINE_AFTER", timedelta(seconds=90))],
)
def test_in_a_local_run_sender_health_may_run_faster(
    nowhere: dict[str, str], setting: str, expected: timedelta
) -> None:
    read = read_settings(nowhere | {"OTP_EMBEDDED": "true", "HEALTH_SPEED": "60"})
    assert read[setting] == expected

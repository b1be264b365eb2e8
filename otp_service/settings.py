"""Settings: environment variables only, each named in README's table (a test compares the two).

Where `make up` runs embedded servers, the addresses and secrets that it made stand in the state folder
(`var/`); a local run uses them for what the environment does not give. Importing this module starts nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import available_timezones

import environ
from django.core.exceptions import ImproperlyConfigured

from otp_service.core.crypto import CryptoError, parse_keys
from otp_service.core.logs import logging_config
from otp_service.embedded import celery_broker_url, default_state_dir
from otp_service.messages import plan
from otp_service.messages.rules import Channel, OnLateFirst, OnUnknown
from servers.rules import ladder_faults, ladder_of

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()


# --- helpers that refuse nonsense, naming the variable -------------------------------------------------

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_LONGEST_PAUSE_MINUTES = 7 * 1_440


def _text(name: str, default: str = "") -> str:
    """What the environment says; nothing between the quotes counts as not set."""
    return str(env.str(name, default="")) or default


def _required(name: str, hint: str) -> str:
    value = _text(name) or str(_local.get(name) or "")
    if not value:
        raise ImproperlyConfigured(f"{name} is not set: {hint}")
    return value


def _url(name: str, schemes: tuple[str, ...], hint: str) -> str:
    value = _required(name, hint)
    if not value.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        # The address is not shown: it may hold a password.
        raise ImproperlyConfigured(f"{name} must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    return value


def _public_url(name: str) -> str:
    value = _text(name).rstrip("/")
    parts = urlsplit(value)
    if value and (parts.scheme not in {"https", "http"} or not parts.hostname or parts.query or parts.fragment):
        raise ImproperlyConfigured(f"{name} must be a public address without a query, as in https://otp.example.com")
    return value


def _keys(name: str, hint: str) -> dict[str, bytes]:
    try:
        return parse_keys(_required(name, hint))
    except CryptoError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None


def _bool(name: str, default: bool) -> bool:
    text = _text(name, str(default)).lower()
    if text not in _TRUE + _FALSE:
        raise ImproperlyConfigured(f"{name} is {text!r}: one of {', '.join(_TRUE + _FALSE)} is allowed")
    return text in _TRUE


def _list(name: str, default: list[str]) -> list[str]:
    return [part for part in (part.strip() for part in _text(name).split(",")) if part] or default


def _number(name: str, default: float, *, least: float, most: float) -> float:
    try:
        value = float(_text(name, str(default)))
    except ValueError:
        raise ImproperlyConfigured(f"{name} is not a number") from None
    if not least <= value <= most:  # not a number (NaN) is within no bounds either
        raise ImproperlyConfigured(f"{name} is {value:g}: from {least:g} to {most:g} is allowed")
    return value


def _whole(name: str, default: int, *, least: int, most: int) -> int:
    value = _number(name, default, least=least, most=most)
    if not value.is_integer():
        raise ImproperlyConfigured(f"{name} is {value:g}: a whole number is needed")
    return int(value)


def _seconds(name: str, default: float, *, least: float = 0.001, most: float = 86_400 * 400) -> timedelta:
    return timedelta(seconds=_number(name, default, least=least, most=most))


def _span_minutes(name: str, default: str) -> tuple[float, float]:
    text = _text(name, default)
    try:
        low, high = (float(part) for part in text.split("-"))
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {text!r}: write two numbers of minutes, as in {default}") from None
    if not 0 < low <= high <= _LONGEST_PAUSE_MINUTES:
        raise ImproperlyConfigured(
            f"{name} is {text!r}: the first number must be over 0 and not over the second, "
            f"the second not over {_LONGEST_PAUSE_MINUTES}"
        )
    return low, high


def _parsed(name: str) -> Any:
    """The JSON in a variable; None where it is not set, or null."""
    try:
        return json.loads(_text(name) or "null")
    except ValueError:
        raise ImproperlyConfigured(f"{name} is not JSON") from None


def _whole_minutes(name: str, default: str) -> tuple[int, int]:
    low, high = _span_minutes(name, default)
    if not (low.is_integer() and high.is_integer()):
        raise ImproperlyConfigured(f"{name} is {low:g}-{high:g}: whole minutes are drawn from it")
    return int(low), int(high)


def _health_seconds(name: str, default: float, *, least: float = 0) -> timedelta:
    """A duration of sender health: it shrinks with HEALTH_SPEED, as the minutes do."""
    return _seconds(name, default, least=least) / HEALTH_SPEED


def _ladder(name: str, default: str) -> str:
    text = _text(name, default)
    try:
        faults = ladder_faults(ladder_of(text))
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is {text!r}: {error}") from None
    if faults:
        raise ImproperlyConfigured(f"{name} is {text!r}: {'; '.join(faults)}")
    return text


def _bare_key(name: str, default: str = "") -> str:
    """A key as it stands in a header: it is compared with what callers send, so nothing that a header changes."""
    value = _text(name) or default
    if value and not re.fullmatch(r"[!-~]{20,200}", value):
        raise ImproperlyConfigured(f"{name} must be 20 to 200 printable ASCII characters without spaces")
    return value


def _prefix(name: str, default: str) -> str:
    value = _text(name, default)
    if not re.fullmatch(r"(?:[A-Za-z0-9_-]+/)+", value):
        raise ImproperlyConfigured(f"{name} is {value!r}: segments of letters, digits, - and _, each with its /")
    taken = ("admin/", "health/", "webhooks/", "static/", "api/schema/", "api/docs/", "api/v1/messages/")
    if value.startswith((*taken, "api/v1/campaigns/", "api/v1/recipients/", "api/v1/manage/routes/")):
        raise ImproperlyConfigured(f"{name} is {value!r}: other addresses stand there")
    return value


def _whole_list(name: str, default: str, *, most: int) -> tuple[int, ...]:
    text = _text(name, default)
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,6}", part) and 0 < int(part) <= most for part in parts):
        raise ImproperlyConfigured(f"{name} is {text!r}: whole numbers from 1 to {most} by commas, as in {default}")
    return tuple(int(part) for part in parts)


def _hours(name: str, default: str) -> tuple[int, int]:
    text = _text(name, default)
    found = re.fullmatch(r"([0-9]{1,2})-([0-9]{1,2})", text)
    low, high = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 0 <= low < high <= 24:
        raise ImproperlyConfigured(f"{name} is {text!r}: two hours of the day, as in {default}, the first one smaller")
    return low, high


def _texts(name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """A JSON list of short sentences. None with a digit: it could be taken for a code."""
    value = _parsed(name)
    if value is None:
        return default
    is_list = isinstance(value, list) and value and all(isinstance(item, str) and item.strip() for item in value)
    if not is_list or any(len(item) > 200 or re.search(r"\d", item) for item in value):
        raise ImproperlyConfigured(f"{name} must be a JSON list of sentences of up to 200 characters, without digits")
    return tuple(value)


def _time_zones(name: str, default: dict[str, str]) -> dict[str, str]:
    """Region → time zone; "" is for every other region."""
    zones = default | _json(name, {})
    for region, zone in zones.items():
        if zone not in available_timezones():
            raise ImproperlyConfigured(f"{name}: {zone!r} of {region!r} is no time zone; as in Europe/Madrid")
    return zones


def _choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = _text(name, default)
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} is {value!r}: one of {', '.join(allowed)} is allowed")
    return value


def _json(name: str, default: dict[str, Any]) -> dict[str, Any]:
    value = _parsed(name)
    if value is None:
        return default
    if not isinstance(value, dict):
        raise ImproperlyConfigured(f"{name} must be a JSON object")
    return value


def _is_whole(value: object, *, most: float = math.inf) -> bool:
    """A JSON number that is whole and over 0; `true` is none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


_WEEK_S = plan.MAX_LIFETIME.total_seconds()
#: Cell of a lane → what it may be, and the test.
_CELLS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "ttl_s": (f"whole seconds from 1 to {_WEEK_S:g}", lambda value: _is_whole(value, most=_WEEK_S)),
    "min_ttl_s": (f"whole seconds from 1 to {_WEEK_S:g}", lambda value: _is_whole(value, most=_WEEK_S)),
    "first_attempt_within_s": (
        f"whole seconds from 1 to {_WEEK_S:g}, or null",
        lambda value: value is None or _is_whole(value, most=_WEEK_S),
    ),
    "on_late_first": (" or ".join(OnLateFirst), lambda value: value in list(OnLateFirst)),
    "max_attempts": ("a whole number from 1 to 10", lambda value: _is_whole(value, most=10)),
    "max_routes": ("a whole number from 1 to 10", lambda value: _is_whole(value, most=10)),
    "on_unknown": (" or ".join(OnUnknown), lambda value: value in list(OnUnknown)),
}


def _lanes(name: str, default: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The defaults of each lane, with the cells that are given."""
    lanes = {lane: dict(cells) for lane, cells in default.items()}
    for lane, cells in _json(name, {}).items():
        if lane not in lanes or not isinstance(cells, dict) or not cells.keys() <= _CELLS.keys():
            raise ImproperlyConfigured(f"{name}: {lane!r} is not a lane, or names a cell that a lane does not have")
        for cell, value in cells.items():
            allowed, is_allowed = _CELLS[cell]
            if not is_allowed(value):
                raise ImproperlyConfigured(f"{name}: {cell} of {lane} is {value!r}: it must be {allowed}")
        lanes[lane] |= cells
        if lanes[lane]["min_ttl_s"] > lanes[lane]["ttl_s"]:
            raise ImproperlyConfigured(f"{name}: min_ttl_s of {lane} is over its ttl_s")
    return lanes


def _pools(name: str, default: dict[str, list[str]]) -> dict[str, list[str]]:
    """Beginning of the number → pools."""
    rows = _json(name, default)
    if "" not in rows:
        raise ImproperlyConfigured(f'{name}: the row "" is missing, which is for every other number')
    for prefix, pools in rows.items():
        if prefix and not re.fullmatch(r"\+[0-9]{1,15}", prefix):
            raise ImproperlyConfigured(f"{name}: {prefix!r} is not the beginning of a number, as in +34")
        named = isinstance(pools, list) and all(isinstance(p, str) and re.fullmatch(r"[a-z0-9]{1,8}", p) for p in pools)
        if not named or not pools or len(set(pools)) < len(pools):
            raise ImproperlyConfigured(
                f"{name}: {prefix!r} needs a list of pools, each once: 1 to 8 lower case letters and digits"
            )
    return rows


def _local_values() -> dict[str, Any]:
    """What the state folder gives: everything in a local run, nothing anywhere else.

    Beside a running `make up`, a shell that names none of its values is a local run. One that names some and
    forgot others is not: it must not go on with secrets that no other process of its has.
    """
    secrets, servers = _state_file("secrets.json"), _state_file("embedded.json")
    is_named = any(map(_text, ("DATABASE_URL", "REDIS_URL", "DJANGO_SECRET_KEY", "FIELD_ENCRYPTION_KEYS", "HASH_KEYS")))
    return secrets | servers if _bool("OTP_EMBEDDED", bool(servers) and not is_named) else {}


def _state_file(file_name: str) -> dict[str, Any]:
    try:
        return dict(json.loads((STATE_DIR / file_name).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


# --- where it runs ------------------------------------------------------------------------------------

STATE_DIR = default_state_dir({"OTP_STATE_DIR": _text("OTP_STATE_DIR")})
_local = _local_values()
EMBEDDED = _bool("OTP_EMBEDDED", bool(_local))

DEBUG = _bool("DEBUG", False)
SECRET_KEY = _required("DJANGO_SECRET_KEY", "a long random string; `make up` makes one for a local run")
ALLOWED_HOSTS = _list("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"] if EMBEDDED else [])
CSRF_TRUSTED_ORIGINS = _list("CSRF_TRUSTED_ORIGINS", [])
BEHIND_TLS_PROXY = _bool("BEHIND_TLS_PROXY", False)

# --- data ---------------------------------------------------------------------------------------------

DATABASE_URL = _url(
    "DATABASE_URL",
    ("postgres", "postgresql"),
    "postgres://user:password@host/name; or run `make up`, which starts its own",
)
REDIS_URL = _url(
    "REDIS_URL", ("redis", "rediss", "unix"), "redis://host:6379/0; or run `make up`, which starts its own"
)
DATABASES = {"default": env.db_url_config(DATABASE_URL)}
DATABASES["default"] |= {
    "CONN_MAX_AGE": 60,  # seconds
    "CONN_HEALTH_CHECKS": True,
    "ATOMIC_REQUESTS": False,  # side effects come after the commit; see otp_service.messages.intake
}
DATABASES["default"].setdefault("OPTIONS", {})
DATABASES["default"]["OPTIONS"] |= {
    "connect_timeout": 3,
    "options": "-c timezone=UTC -c idle_in_transaction_session_timeout=60s -c statement_timeout=60s",
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
FIELD_ENCRYPTION_KEYS = _keys("FIELD_ENCRYPTION_KEYS", "id:base64 of 32 bytes; the first one writes, all of them read")
HASH_KEYS = _keys("HASH_KEYS", "id:base64 of 32 bytes; the first one is used for new rows")

# --- messages -----------------------------------------------------------------------------------------

#: What a lane gives a message that does not say otherwise (seconds); LANE_DEFAULTS overrides single cells.
LANE_DEFAULTS: dict[str, dict[str, Any]] = _lanes(
    "LANE_DEFAULTS",
    {
        "otp": {
            "ttl_s": 300,
            "min_ttl_s": 30,
            "first_attempt_within_s": 15,
            "on_late_first": "send",
            "max_attempts": 4,
            "max_routes": 3,
            "on_unknown": "race",
        },
        "transactional": {
            "ttl_s": 3_600,
            "min_ttl_s": 60,
            "first_attempt_within_s": 120,
            "on_late_first": "send",
            "max_attempts": 5,
            "max_routes": 3,
            "on_unknown": "hold",
        },
        "promo": {
            "ttl_s": 86_400,
            "min_ttl_s": 300,
            "first_attempt_within_s": None,
            "on_late_first": "send",
            "max_attempts": 2,
            "max_routes": 2,
            "on_unknown": "hold",
        },
    },
)

#: Pools (our regions) by the beginning of the number, longest first; "" is for every other number.
POOLS_BY_PREFIX: dict[str, list[str]] = _pools(
    "POOLS_BY_PREFIX",
    {
        "+34": ["es", "zp", "vj"],
        "+351": ["pt", "es"],
        "+380": ["ua"],
        "+1": ["us"],
        "": ["es", "zp", "vj", "pt", "ua", "us"],
    },
)
#: Extra copies of a message that may leave while nobody can say whether one has.
DUPLICATE_BUDGET = _whole("DUPLICATE_BUDGET", 1, least=0, most=5)
RECEIPT_WAIT = _seconds("RECEIPT_WAIT_S", 120)  # an accepted attempt that reports nothing is asked about after this
RECEIPT_GRACE = _seconds("RECEIPT_GRACE_S", 600)  # after its lifetime a message waits so long for a late receipt
IDEMPOTENCY_KEY_LIFE = _seconds("IDEMPOTENCY_KEY_LIFE_S", 172_800, least=172_800)
STOP_ONLY_PROMO = _bool("STOP_ONLY_PROMO", True)  # otp and transactional go on to a recipient that answered STOP
INVALID_FOR = _seconds("INVALID_FOR_S", 86_400, least=1)  # how long a number stays refused

# --- sender health ------------------------------------------------------------------------------------

#: How many times faster than in production everything of this section runs, minutes and seconds alike: for drills.
HEALTH_SPEED = _number("HEALTH_SPEED", 1, least=1, most=60)
if HEALTH_SPEED != 1 and not EMBEDDED:
    raise ImproperlyConfigured(f"HEALTH_SPEED is {HEALTH_SPEED:g}: drills are for a local run (OTP_EMBEDDED)")

FAILED_IN_ROW = _whole("FAILED_IN_ROW", 2, least=1, most=100)
COOLDOWN_LADDER = _ladder("COOLDOWN_LADDER", "standard")
COUNT_ONLY_SENDER_FAULTS = _bool("COUNT_ONLY_SENDER_FAULTS", True)
SEND_INTERVAL_MINUTES = _span_minutes("SEND_INTERVAL_MINUTES", "8-12")
RELEASE_PAUSE = _health_seconds("RELEASE_PAUSE_S", 600)
RESET_RULE = _choice("RESET_RULE", "calendar_window", ("calendar_window", "since_release", "either"))
RESET_DELIVERIES = _whole("RESET_DELIVERIES", 11, least=1, most=1_000)
RESET_DELIVERIES_PREHEATING = _whole("RESET_DELIVERIES_PREHEATING", 2, least=1, most=1_000)
RESET_WINDOW = _health_seconds("RESET_WINDOW_S", 14 * 3_600, least=1)

# The warm-up gate.
LONG_COOLDOWN_MINUTES = _whole("LONG_COOLDOWN_MINUTES", 60, least=1, most=1_440)
WARMUP_AFTER_LONG_MINUTES = _whole_minutes("WARMUP_AFTER_LONG_MINUTES", "20-30")
WARMUP_AFTER_SHORT_MINUTES = _whole_minutes("WARMUP_AFTER_SHORT_MINUTES", "5-10")
WARMUP_MIN_MARGIN = _health_seconds("WARMUP_MIN_MARGIN_S", 300)  # from a warm-up's slot to the cooldown's end
WARMUP_LEAD = _health_seconds("WARMUP_LEAD_S", 4_500, least=1)  # sent no earlier before the cooldown's end
WARMUP_PROOF_WINDOW = _health_seconds("WARMUP_PROOF_WINDOW_S", 10_800, least=1)
WARMUP_RECEIVER_REST = _health_seconds("WARMUP_RECEIVER_REST_S", 300)
WARMUP_TEXTS = _texts(
    "WARMUP_TEXTS",
    (
        "Good morning! How are you?",
        "Are we still meeting later?",
        "Thanks, that was very kind of you.",
        "I will call you back in a while.",
        "Did you see the news today?",
        "Have a nice day!",
        "Sounds good, see you there.",
        "What are you doing this weekend?",
        "Say hello to everybody from me.",
        "I have just got home.",
    ),
)
VERDICT_DELAY = _health_seconds("VERDICT_DELAY_S", 180)
EXTENSION_MINUTES = _whole_minutes("EXTENSION_MINUTES", "55-70")
MAX_EXTENSIONS = _whole("MAX_EXTENSIONS", 2, least=0, most=100)
FAIL_OPEN_LIMIT = _whole("FAIL_OPEN_LIMIT", 3, least=1, most=100)

# When the sweeps run: the pause between two runs, and what is drawn on top of it.
COOLDOWN_SWEEP = _health_seconds("COOLDOWN_SWEEP_S", 120, least=1)
COOLDOWN_SWEEP_JITTER = _health_seconds("COOLDOWN_SWEEP_JITTER_S", 300)
WARMUP_SWEEP = _health_seconds("WARMUP_SWEEP_S", 300, least=1)
WARMUP_SWEEP_JITTER = _health_seconds("WARMUP_SWEEP_JITTER_S", 15)

# Preheat and chat-preheat.
PREHEAT_PLAN = _whole_list("PREHEAT_PLAN", "4,8,12,16,20", most=1_000)  # internal sends on each day
PREHEAT_REPEATS = _whole("PREHEAT_REPEATS", 2, least=0, most=100)  # of the last day, before a person is asked
PREHEAT_CONFIRMED_SHARE = _number("PREHEAT_CONFIRMED_SHARE", 0.8, least=0, most=1)
PREHEAT_PACE = _number("PREHEAT_PACE", 0.25, least=0.01, most=1)  # of the normal pace of client messages
PREHEAT_HOURS = _hours("PREHEAT_HOURS", "8-22")  # of the region's own time
REGION_TIME_ZONES = _time_zones(
    "REGION_TIME_ZONES",
    {
        "": "UTC",
        "es": "Europe/Madrid",
        "zp": "Europe/Madrid",
        "vj": "Europe/Madrid",
        "pt": "Europe/Lisbon",
        "ua": "Europe/Kyiv",
        "us": "America/New_York",
    },
)
CHAT_PREHEAT_MESSAGES = _whole("CHAT_PREHEAT_MESSAGES", 6, least=1, most=100)
CHAT_PREHEAT_PAUSE_MINUTES = _span_minutes("CHAT_PREHEAT_PAUSE_MINUTES", "1-4")
CHAT_PREHEAT_PATIENCE = _health_seconds("CHAT_PREHEAT_PATIENCE_S", 900, least=1)

# Beyond the counter: what is off as shipped, and what only looks on.
STORM_BRAKE = _choice("STORM_BRAKE", "shadow", ("off", "shadow", "enforce"))
STORM_WINDOW = _health_seconds("STORM_WINDOW_S", 900, least=1)
STORM_ON_SHARE = _number("STORM_ON_SHARE", 0.3, least=0.01, most=1)
STORM_OFF_SHARE = _number("STORM_OFF_SHARE", 0.1, least=0, most=1)
STORM_MIN_HOST = _whole("STORM_MIN_HOST", 5, least=1, most=1_000_000)
STORM_MIN_REGION = _whole("STORM_MIN_REGION", 20, least=1, most=1_000_000)
FAILURE_RATE_LIMIT = _number("FAILURE_RATE_LIMIT", 0, least=0, most=1)  # 0: off
FAILURE_RATE_MIN_MESSAGES = _whole("FAILURE_RATE_MIN_MESSAGES", 20, least=1, most=1_000_000)
MESSAGES_LIMIT_24_HOURS = _whole("MESSAGES_LIMIT_24_HOURS", 0, least=0, most=1_000_000)  # 0: off
OTP_LIMITS_1_HOUR = _whole("OTP_LIMITS_1_HOUR", 0, least=0, most=1_000_000)  # 0: off
BUDGET_MESSAGES_PER_DAY = _whole("BUDGET_MESSAGES_PER_DAY", 0, least=0, most=1_000_000)  # 0: no limit
BUDGET_NEW_RECIPIENTS_PER_DAY = _whole("BUDGET_NEW_RECIPIENTS_PER_DAY", 0, least=0, most=1_000_000)  # 0: no limit

# Hosts, and a person's verdicts.
HOST_OFFLINE_AFTER = _seconds("HOST_OFFLINE_AFTER_S", 90)
SIGNED_OUT_LOST_AFTER = _health_seconds("SIGNED_OUT_LOST_AFTER_S", 86_400, least=1)
BOOMERANG_WITHIN = _health_seconds("BOOMERANG_WITHIN_S", 86_400, least=1)
STICKY_FOR = _seconds("STICKY_FOR_S", 30 * 86_400)

# --- dispatcher ---------------------------------------------------------------------------------------

LEASE = _seconds("LEASE_S", 20, least=1)  # longer than the hard deadline of a call: checked at start
SHUTDOWN_GRACE = _seconds("SHUTDOWN_GRACE_S", 15, least=0)
#: Routes that answer by themselves and deliver nothing. Off: what stands in the database of them is left out.
SIMULATED_ROUTES = _bool("SIMULATED_ROUTES", False)

#: Where providers find us: they are told to post receipts there, and sign what they post with it. "": nowhere.
PUBLIC_URL = _public_url("PUBLIC_URL")

# --- web ----------------------------------------------------------------------------------------------

WEB_THREADS = _whole("WEB_THREADS", 16, least=1, most=1_000)
#: MiB of an upload of a campaign; it lies in a temporary file while it is read. Other bodies are bounded in the code.
CAMPAIGN_BODY_LIMIT_MB = _whole("CAMPAIGN_BODY_LIMIT_MB", 1_024, least=1, most=1_048_576)

# --- relay hosts --------------------------------------------------------------------------------------

RELAY_BEARER_ALLOWED = _bool("RELAY_BEARER_ALLOWED", False)

# --- manage API ---------------------------------------------------------------------------------------

#: Where it stands. The path protects nothing: the key does.
MANAGE_API_PREFIX = _prefix("MANAGE_API_PREFIX", "api/v1/4fa5e0fd/servers/")
#: Without a key the manage API is off. The previous one opens it too, while callers change theirs.
MANAGE_SERVERS_API_AUTH_KEY = _bare_key(
    "MANAGE_SERVERS_API_AUTH_KEY", str(_local.get("MANAGE_SERVERS_API_AUTH_KEY", ""))
)
MANAGE_SERVERS_API_AUTH_KEY_PREVIOUS = _bare_key("MANAGE_SERVERS_API_AUTH_KEY_PREVIOUS")

# --- staff log-in -------------------------------------------------------------------------------------

STAFF_LOCKOUT_AFTER = _whole("STAFF_LOCKOUT_AFTER", 5, least=1, most=100)
STAFF_LOCKOUT = _seconds("STAFF_LOCKOUT_S", 900, least=1, most=86_400)
STAFF_SESSION = _seconds("STAFF_SESSION_S", 8 * 3_600, least=60, most=30 * 86_400)
STAFF_TOTP = _choice("STAFF_TOTP", "off", ("off", "required"))

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",  # refuses who is locked out before a password is looked at
    "django.contrib.auth.backends.ModelBackend",
]
AXES_HANDLER = "otp_service.staff.lock_out.LockOut"
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address"]  # in the order that LockOut takes them
AXES_FAILURE_LIMIT = STAFF_LOCKOUT_AFTER
AXES_COOLOFF_TIME = STAFF_LOCKOUT
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "otp_service.staff.lock_out.counted_address"
AXES_USERNAME_CALLABLE = "otp_service.staff.lock_out.counted_name"
AXES_CLIENT_STR_CALLABLE = "otp_service.staff.lock_out.in_words"
AXES_LOCKOUT_CALLABLE = "otp_service.staff.lock_out.locked_out"
AXES_SENSITIVE_PARAMETERS = ["username", "code", "csrfmiddlewaretoken"]  # beside the password
AXES_VERBOSE = False
AXES_DISABLE_ACCESS_LOG = True  # a row for every log-in, for ever
AXES_ENABLE_ADMIN = False  # otp_service.staff.admin has its own page
OTP_TOTP_ISSUER = "OTP service"
OTP_ADMIN_HIDE_SENSITIVE_DATA = True

# --- Django -------------------------------------------------------------------------------------------

ROOT_URLCONF = "otp_service.urls"
WSGI_APPLICATION = "otp_service.wsgi.application"
INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_celery_beat",
    "axes",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "django_otp.plugins.otp_static",
    "otp_service.web",
    "otp_service.staff",
    "otp_service.events",
    "servers",
    "otp_service.messages",
    "otp_service.routes",
    "otp_service.simulation",
    "webhooks.inbound",
    "scheduler",
    "otp_service.board",
]
MIDDLEWARE = [
    "otp_service.web.middleware.DatabaseAwayMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "otp_service.web.middleware.AdminAddressMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "otp_service.staff.middleware.CodeRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = "otp_service.web.formats"
STATIC_URL = "static/"
STATIC_ROOT = Path(_text("STATIC_ROOT", str(BASE_DIR / "staticfiles")))
#: A local run serves assets out of the packages as they are; production collects them into STATIC_ROOT.
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = EMBEDDED
APPEND_SLASH = False  # a POST must not be answered by a redirect that loses its body

SESSION_COOKIE_AGE = int(STAFF_SESSION.total_seconds())
SESSION_EXPIRE_AT_BROWSER_CLOSE = True
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"  # a link in a chat opens a page; no other site's form posts
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = not EMBEDDED
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_SSL_REDIRECT = BEHIND_TLS_PROXY
SECURE_REDIRECT_EXEMPT = [r"^health/"]  # the container's own probe speaks plain HTTP
SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS_PROXY else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = BEHIND_TLS_PROXY
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_TLS_PROXY else None

#: Bytes of a request body that Django itself reads; API views set their own, smaller bounds.
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_048_576

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": ["otp_service.web.permissions.DenyAll"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["otp_service.web.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "otp_service.web.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "OTP delivery service",
    "DESCRIPTION": "Post a message, follow it, and be told what happened.",
    "VERSION": "1",
    "PATH_CONVERTER_OVERRIDES": {"any_case_uuid": {"type": "string", "format": "uuid"}},
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {"ChannelEnum": [channel.value for channel in Channel]},  # several fields hold channels
    "SCHEMA_PATH_PREFIX": r"/api/v1",
}
UNFOLD = {
    "SITE_TITLE": "OTP service",
    "SITE_HEADER": "OTP service",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": f"/{STATIC_URL}web/icon.svg"}],
    "SIDEBAR": {"navigation": "otp_service.web.sidebar.navigation"},
}

# --- Celery -------------------------------------------------------------------------------------------

_socket_options = {
    "socket_timeout": 5,  # seconds; without one a publish to a half-open socket hangs for ever
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "retry_on_timeout": True,
}
CELERY_BROKER_URL = celery_broker_url(REDIS_URL)
CELERY_BROKER_TRANSPORT_OPTIONS = _socket_options | {"global_keyprefix": "otp:", "visibility_timeout": 600}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_TIME_LIMIT = 300  # seconds; a task is one bounded sweep
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"

# --- logs ---------------------------------------------------------------------------------------------

LOG_LEVEL = _choice("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOG_FORMAT = _choice("LOG_FORMAT", "text" if EMBEDDED else "json", ("text", "json"))
LOGGING_CONFIG = None
logging_config(LOG_LEVEL, LOG_FORMAT)

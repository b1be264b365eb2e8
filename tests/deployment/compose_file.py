"""docker-compose.yml as data, and what is wrong with a service in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

Service = Mapping[str, Any]

_UNITS = {"s": 1, "m": 60, "h": 3_600}
_VARIABLE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)(:\?|:-)?")


def read_compose(text: str) -> dict[str, Any]:
    """The file, its anchors resolved."""
    return dict(yaml.safe_load(text))


def hardening_faults(service: Service) -> list[str]:
    """What every container must have and this one lacks."""
    limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
    promises = {
        "runs as a user that is not root": re.fullmatch(r"[1-9]\d*:[1-9]\d*", str(service.get("user"))) is not None,
        "a root file system that is read-only": service.get("read_only") is True,
        "a place for temporary files": bool(service.get("tmpfs")),
        "no capability": service.get("cap_drop") == ["ALL"] and not service.get("cap_add"),
        "no new privileges": service.get("security_opt") == ["no-new-privileges:true"],
        "not privileged": not service.get("privileged"),
        "limits": {"cpus", "memory", "pids"} <= limits.keys(),
        "a policy of restarts": "restart" in service,
        "time to stop": "stop_grace_period" in service,
        "a bound on its log": bool(service.get("logging", {}).get("options", {}).get("max-size")),
    }
    return [promise for promise, is_kept in promises.items() if not is_kept]


def seconds(duration: str) -> int:
    """Of a duration such as `90s` or `1m30s`."""
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smh])", duration))


def variables(text: str) -> dict[str, bool]:
    """The variables that a file takes from its environment; True for those without which nothing starts."""
    uncommented = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {name: mark == ":?" for name, mark in _VARIABLE.findall(uncommented)}

"""docker-compose.yml is valid, keeps what operations promise, and names only what exists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery.bin.celery import celery as celery_command
from click import Context, NoSuchOption
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError
from django.urls import resolve
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.protocols import Validator

from otp_service import health
from tests.deployment.compose_file import hardening_faults, read_compose, seconds, variables
from tests.house.settings_names import environment_names

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, Any] = read_compose(TEXT)["services"]
OURS = ("migrate", "web", "dispatcher", "worker", "beat")
NOT_OURS = ("db", "redis")


@pytest.fixture(scope="module")
def schema() -> Validator:
    """The schema of the Compose Specification."""
    document = json.loads(Path(__file__).with_name("compose-spec.json").read_text())
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document, format_checker=FormatChecker())


# --- the schema ---------------------------------------------------------------------------------------


def test_is_valid_by_the_compose_schema(schema: Validator) -> None:
    assert [f"{list(error.absolute_path)}: {error.message}" for error in schema.iter_errors(read_compose(TEXT))] == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file["services"]["web"].update(helthcheck={}),
        lambda file: file["services"]["web"].update(read_only="perhaps", init=[]),
        lambda file: file["services"]["db"]["healthcheck"].update(retries=[5]),
        lambda file: file["services"]["beat"].update(depends_on={"migrate": {"condition": "done"}}),
        lambda file: file["services"]["beat"]["deploy"]["resources"]["limits"].update(ram="1G"),
        lambda file: file.update(servces={}),
    ],
)
def test_the_schema_refuses_what_compose_would_not_understand(
    schema: Validator, spoil: Callable[[dict[str, Any]], None]
) -> None:
    file = json.loads(json.dumps(read_compose(TEXT)))
    spoil(file)
    assert not schema.is_valid(file)


# --- what operations promise --------------------------------------------------------------------------


def test_has_our_processes_and_their_servers_and_nothing_else() -> None:
    assert set(SERVICES) == {*OURS, *NOT_OURS}


@pytest.mark.parametrize("name", [*OURS, *NOT_OURS])
def test_every_container_is_hardened(name: str) -> None:
    assert hardening_faults(SERVICES[name]) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"user": "root"}, "runs as a user that is not root"),
        ({"user": "0:0"}, "runs as a user that is not root"),
        ({"user": "10001:0"}, "runs as a user that is not root"),
        ({"user": None}, "runs as a user that is not root"),
        ({"read_only": False}, "a root file system that is read-only"),
        ({"tmpfs": []}, "a place for temporary files"),
        ({"cap_drop": ["NET_RAW"]}, "no capability"),
        ({"cap_add": ["SYS_ADMIN"]}, "no capability"),
        ({"security_opt": ["seccomp:unconfined"]}, "no new privileges"),
        ({"privileged": True}, "not privileged"),
        ({"deploy": {"resources": {"limits": {"cpus": "1.0", "memory": "1G"}}}}, "limits"),
        ({"logging": {"driver": "local"}}, "a bound on its log"),
    ],
)
def test_a_container_that_is_not_hardened_is_found(change: dict[str, Any], fault: str) -> None:
    assert hardening_faults({**SERVICES["web"], **change}) == [fault]


def test_only_web_listens_outside_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert list(published) == ["web"]
    assert all(port.startswith("127.0.0.1:") for port in published["web"])


def test_the_servers_are_in_a_network_without_a_way_out() -> None:
    assert read_compose(TEXT)["networks"]["data"] == {"internal": True}
    assert all(SERVICES[name]["networks"] == ["data"] for name in NOT_OURS)


def test_what_is_in_postgres_outlives_its_container() -> None:
    volumes = read_compose(TEXT)["volumes"]
    # Since 18 the image keeps its data below this folder; mounted anywhere else they would be lost.
    assert SERVICES["db"]["image"] == "postgres:18"
    assert SERVICES["db"]["volumes"] == ["postgres:/var/lib/postgresql"]
    assert "postgres" in volumes


def test_redis_refuses_writes_rather_than_drop_a_task() -> None:
    command = SERVICES["redis"]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


@pytest.mark.parametrize("name", ["web", "dispatcher", "worker", "beat"])
def test_processes_wait_for_the_migration(name: str) -> None:
    assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_the_migration_waits_for_the_database_and_runs_once() -> None:
    assert SERVICES["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert SERVICES["migrate"]["restart"] == "no"


@pytest.mark.parametrize("name", ["db", "redis", "web"])
def test_what_others_wait_for_or_ask_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", OURS)
def test_our_processes_have_a_process_1_that_reaps_and_are_asked_to_stop(name: str) -> None:
    assert SERVICES[name]["init"] is True
    assert SERVICES[name]["stop_signal"] == "SIGTERM"


def test_a_dispatcher_has_more_time_to_stop_than_it_gives_to_calls_in_flight() -> None:
    assert seconds(SERVICES["dispatcher"]["stop_grace_period"]) > settings.SHUTDOWN_GRACE.total_seconds()


@pytest.mark.parametrize(("text", "expected"), [("30s", 30), ("1m30s", 90), ("2h", 7_200)])
def test_reads_durations(text: str, expected: int) -> None:
    assert seconds(text) == expected


# --- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
def test_every_variable_that_is_set_is_one_that_is_read(name: str) -> None:
    known = environment_names((ROOT / "otp_service/settings.py").read_text())
    assert SERVICES[name]["environment"].keys() <= known


def test_nothing_starts_without_its_secrets() -> None:
    required = {name for name, is_required in variables(TEXT).items() if is_required}
    assert required == {
        "ALLOWED_HOSTS",
        "DJANGO_SECRET_KEY",
        "FIELD_ENCRYPTION_KEYS",
        "HASH_KEYS",
        "POSTGRES_PASSWORD",
    }


@pytest.mark.parametrize("name", ["migrate", "dispatcher"])
def test_management_commands_exist_and_take_their_options(name: str) -> None:
    python, script, command, *options = SERVICES[name]["command"]
    assert (python, script) == ("python", "manage.py")
    assert (ROOT / script).exists()
    parse_management(command, options)


def test_a_management_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(CommandError, match="--flor"):
        parse_management("dispatch", ["--flor", "60"])


def parse_management(command: str, options: list[str]) -> None:
    """Read the options as the command would."""
    load_command_class(get_commands()[command], command).create_parser("manage.py", command).parse_args(options)


@pytest.mark.parametrize("name", ["worker", "beat"])
def test_celery_commands_exist_and_take_their_options(name: str) -> None:
    program, flag, app, command, *options = SERVICES[name]["command"]
    assert (program, flag, app, command) == ("celery", "--app", "otp_service", name)
    parse_celery(command, options)


def test_a_celery_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(NoSuchOption):
        parse_celery("worker", ["--concurency", "2"])


def parse_celery(command: str, options: list[str]) -> None:
    """Read the options as Celery would; it changes the list that it is given."""
    found = celery_command.commands[command]
    found.make_parser(Context(found)).parse_args(list(options))


def test_the_health_check_of_web_is_a_program_that_asks_an_address_of_ours() -> None:
    _, python, flag, program = SERVICES["web"]["healthcheck"]["test"]
    assert (python, flag) == ("python", "-c")
    compile(program, "health check", "exec")
    (address,) = re.findall(r"http://127\.0\.0\.1:8000(/[a-z/]+)", program)
    assert resolve(address).func is health.ready


def test_web_runs_what_the_image_is_made_for() -> None:
    assert "command" not in SERVICES["web"]

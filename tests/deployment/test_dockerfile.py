"""The image: not root, only what is locked, and nothing secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deployment.dockerfile import Instruction, command, is_sent, last, read_dockerfile

ROOT = Path(__file__).resolve().parents[2]
STAGES = read_dockerfile((ROOT / "Dockerfile").read_text())
BUILD, IMAGE = STAGES
IGNORE = (ROOT / ".dockerignore").read_text()


def copied_from_here() -> list[str]:
    """What COPY takes out of the repository."""
    copies = [i.text.split() for stage in STAGES for i in stage if i.name in {"COPY", "ADD"}]
    return [source for parts in copies if not parts[0].startswith("--from=") for source in parts[:-1]]


def test_runs_as_a_user_that_is_not_root_by_number() -> None:
    uid, gid = last(IMAGE, "USER").split(":")
    assert int(uid) > 0
    assert int(gid) > 0


def test_changes_nothing_after_it_has_stopped_being_root() -> None:
    after = IMAGE[IMAGE.index(Instruction("USER", last(IMAGE, "USER"))) :]
    assert {instruction.name for instruction in after} <= {"USER", "EXPOSE", "CMD", "ENTRYPOINT"}


def test_both_stages_begin_with_the_same_slim_python() -> None:
    first, second = (stage[0].text.split()[0] for stage in STAGES)
    assert first == second
    assert first.startswith("python:3.")
    assert first.endswith("-slim")


def test_installs_only_what_the_lock_file_names_by_hash() -> None:
    installs = [i.text for stage in STAGES for i in stage if "pip" in i.text and " install " in i.text]
    assert len(installs) == 1
    assert "--require-hashes" in installs[0]
    assert "--requirement requirements.lock" in installs[0]


def test_takes_only_files_that_exist_and_that_a_build_may_see() -> None:
    assert copied_from_here()
    for source in copied_from_here():
        assert (ROOT / source).exists(), source
        assert is_sent(source, IGNORE), source


def test_takes_what_it_needs_by_name() -> None:
    assert not {".", "./", "*"} & set(copied_from_here())


def test_no_secret_stays_in_a_layer() -> None:
    kept = " ".join(i.text for stage in STAGES for i in stage if i.name in {"ENV", "ARG", "LABEL"})
    assert not [name for name in ("SECRET", "KEY", "PASSWORD", "DATABASE_URL") if name in kept]


def test_starts_the_web_process() -> None:
    assert command(IMAGE) == ["python", "-m", "otp_service.serve", "--listen", "0.0.0.0:8000"]


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".env.production",
        "otp_service/.env",
        "var",
        "var/secrets.json",
        "var/demo.json",
        ".git/config",
        ".venv/bin/python",
        "tests/conftest.py",
        "requirements-dev.lock",
        "otp_service/__pycache__/settings.cpython-311.pyc",
        "servers/models.pyc",
        "backup.sql",
    ],
)
def test_a_build_does_not_see(path: str) -> None:
    assert not is_sent(path, IGNORE)


@pytest.mark.parametrize(
    "path",
    [
        "manage.py",
        "requirements.lock",
        "otp_service/settings.py",
        "otp_service/messages/migrations/0001_initial.py",
        "scheduler/management/commands/dispatch.py",
    ],
)
def test_a_build_sees(path: str) -> None:
    assert is_sent(path, IGNORE)


@pytest.mark.parametrize(
    ("path", "ignore_file", "sent"),
    [
        ("a", "", True),
        ("a", "*", False),
        ("a/b", "a", False),
        ("a/b", "*\n!a", True),
        ("a/b", "*\n!a\na/b", False),
        ("a/b", "b", True),
        ("a/b", "**/b", False),
        ("b", "**/b", False),
        ("a/b.pyc", "**/*.py[cod]", False),
        ("a/b.py", "**/*.py[cod]", True),
        ("a", "# a", True),
        ("a", "/a/", False),
    ],
)
def test_reads_ignore_files_as_docker_does(path: str, ignore_file: str, sent: bool) -> None:
    assert is_sent(path, ignore_file) is sent


def test_reads_instructions_over_several_lines() -> None:
    stages = read_dockerfile("FROM a AS b\n# comment\nRUN x \\\n # inside\n  && y\nFROM c\nUSER 1:1\n")
    assert stages == [
        [Instruction("FROM", "a AS b"), Instruction("RUN", "x && y")],
        [Instruction("FROM", "c"), Instruction("USER", "1:1")],
    ]

"""README's table names exactly the environment variables that are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.readme_tables import names_in_first_column
from tests.house.settings_names import UnreadableError, environment_names, names_read_through_os

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("otp_service", "servers", "webhooks", "scheduler")
HEADING = "## Configuration"
#: What every program is told by the system that it runs on.
OF_THE_SYSTEM = {"PATH", "HOME", "TMPDIR"}


def read_by_settings() -> set[str]:
    """The names in our own settings."""
    return environment_names((ROOT / "otp_service/settings.py").read_text())


def read_elsewhere() -> set[str]:
    """The names that other modules of ours ask for by themselves."""
    modules = (module for package in PACKAGES for module in (ROOT / package).rglob("*.py"))
    return set().union(*(names_read_through_os(module.read_text()) for module in modules)) - OF_THE_SYSTEM


def test_readme_names_every_variable_and_no_other() -> None:
    readme = ROOT / "README.md"
    assert readme.exists(), "README.md is missing: the settings are documented nowhere"
    assert names_in_first_column(readme.read_text(), HEADING) == read_by_settings() | read_elsewhere()


def test_finds_variables_of_every_kind_in_the_settings() -> None:
    kinds = {"DEBUG", "ALLOWED_HOSTS", "DATABASE_URL", "HASH_KEYS", "LEASE_S", "RESET_RULE", "SEND_INTERVAL_MINUTES"}
    assert kinds <= read_by_settings()


def test_finds_what_the_environment_is_asked_for() -> None:
    source = 'env = Env()\nA = env.str("A")\nB = [env.bool("B", default=env.str("C", default=""))]\nD = env("D")\n'
    assert environment_names(source) == {"A", "B", "C", "D"}


def test_finds_what_is_read_through_functions_of_functions() -> None:
    source = (
        "def _seconds(name, default):\n    return _number(name, default)\n"
        "def _number(name, default):\n    return env.str(name, default=default)\n"
        'A = _seconds("A_S", 1)\nB = int(_number("B", 2))\n'
    )
    assert environment_names(source) == {"A_S", "B"}


def test_a_function_that_only_takes_a_text_reads_nothing() -> None:
    source = 'def _broker(url):\n    return url\nA = _broker("A")\nB = env.db_url_config("postgres://")\n'
    assert environment_names(source) == set()


@pytest.mark.parametrize(
    "source",
    [
        'NAME = "A"\nA = env.str(NAME)\n',
        'A = env.str(var="A")\n',
        'A = env.str("A" + SUFFIX)\n',
        "for part in PARTS:\n    X = env.str(part)\n",
        'import os\nA = os.environ["A"]\n',
        'import os\nA = os.getenv("A")\n',
    ],
)
def test_refuses_names_that_it_cannot_see(source: str) -> None:
    with pytest.raises(UnreadableError):
        environment_names(source)


def test_finds_what_is_read_past_the_settings() -> None:
    source = 'import os\nA = os.environ["A"]\nB = os.environ.get("B", "")\nC = os.getenv("C")\nD = other.get("D")\n'
    assert names_read_through_os(source) == {"A", "B", "C"}


def test_what_is_written_into_the_environment_is_not_read() -> None:
    source = 'import os\nos.environ["A"] = "1"\nos.environ.setdefault("B", "2")\nos.environ.update(C="3")\n'
    assert names_read_through_os(source) == set()


README = """\
# Title

| `BEFORE` | another table |

## Configuration

| Variable | Default | Meaning |
|---|---|---|
| `A` | `DEFAULT_A` | see `OTHER` |
| `B` | | |

### Dispatcher
| `C_S` | 20 | seconds |

```sh
# Title in code
| `IN_CODE` |
```
| `D` | after code | |

## Next
| `AFTER` | |
"""


def test_reads_the_first_column_of_the_tables_under_the_heading_only() -> None:
    assert names_in_first_column(README, HEADING) == {"A", "B", "C_S", "D"}


def test_a_readme_without_the_heading_names_nothing() -> None:
    assert names_in_first_column("# Title\n| `A` | |\n", HEADING) == set()

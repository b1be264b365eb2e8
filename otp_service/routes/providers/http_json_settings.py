"""How a route's settings describe a provider with a JSON API: templates of requests, and where answers say what."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from otp_service.core.http import Call
from otp_service.core.outcomes import ErrorClass, ReportedState

SETTINGS = ("request", "answer", "errors", "states", "query", "receipt", "check")
#: Those that the service itself reads; a template may name any other as {credentials.<name>}.
CREDENTIALS = ("receipt_token", "receipt_secret")

#: What templates may name. `ttl_min` is rounded down; `receipts_url` has our id and the token in it.
SUBMIT_FIELDS = (
    "to",
    "to_digits",
    "text",
    "sender",
    "attempt_id",
    "ttl_s",
    "ttl_min",
    "expires_at",
    "receipts_url",
)
QUERY_FIELDS = ("attempt_id", "provider_message_id", "to")
_HEADER_FIELDS = frozenset({"attempt_id"})  # anything longer might hold a line break
_FREE_FIELDS = frozenset({"sender", "text"})  # two dots in place of a part of the path would change it
_CREDENTIAL = "credentials."

_ANSWER = ("id", "status", "code")
_TEMPLATE = ("method", "url", "headers", "body")
_METHODS = ("GET", "POST", "PUT", "PATCH")
_FIELD = re.compile(r"\{([^{}]*)\}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_OWN_HEADERS = frozenset({"content-length", "transfer-encoding", "connection"})
#: Classes that a provider's code may have: the others say what became of a call or of a server of ours.
_CLASSES = tuple(
    set(ErrorClass) - {ErrorClass.TIMEOUT_AFTER_SUBMIT, ErrorClass.CONNECTION_REFUSED, ErrorClass.SENDER_FAULT}
)

_LONGEST_POSITION = 4  # digits
Path = tuple[str, ...]  # keys and list positions, outermost first; (): nowhere
Value = str | int


@dataclass(frozen=True, slots=True, repr=False)
class Template:
    """A request with named fields."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: object = None  # JSON; None: no body

    def names(self, name: str) -> bool:
        """Whether the field is in it."""
        return name in _named([self.url, self.body])

    def call(self, fields: Mapping[str, Value]) -> Call:
        """The request with its fields filled in: escaped in the address, as they are elsewhere."""
        url = _FIELD.sub(lambda found: quote(str(fields[found[1]]), safe=""), self.url)
        headers = {name: str(_filled(value, fields)) for name, value in self.headers.items()}
        if self.body is None:
            return Call(self.method, url, headers=headers)
        body = json.dumps(_filled(self.body, fields)).encode()
        return Call(self.method, url, body, {"Content-Type": "application/json", **headers})


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a document says what."""

    id: Path = ()
    status: Path = ()
    code: Path = ()
    attempt: Path = ()
    list: Path = ()


@dataclass(frozen=True, slots=True)
class Description:
    """One provider. Its repr shows no credential."""

    request: Template
    answer: Paths
    accepted: frozenset[str]  # words of `answer.status`; empty: the id alone accepts
    errors: Mapping[str, ErrorClass]
    states: Mapping[str, ReportedState]
    query: Template | None
    queried: Paths
    receipt: Paths | None
    signature_header: str  # lower case; "": receipts are genuine by the token in their address
    check: Template | None
    credentials: Mapping[str, str] = field(repr=False)


def read_settings(settings: Mapping[str, Any], credentials: Mapping[str, str]) -> Description:
    """The provider that a route's settings describe. Raises ValueError: a sentence that names the setting."""
    _refuse_others("", settings, SETTINGS)
    answer = _section(settings, "answer", (*_ANSWER, "accepted"))
    query = _section(settings, "query", (*_TEMPLATE, *_ANSWER))
    receipt = _section(settings, "receipt", (*_ANSWER, "attempt", "list", "signature_header"))
    description = Description(
        request=_template("request", _section(settings, "request", _TEMPLATE), SUBMIT_FIELDS, credentials),
        answer=_paths("answer", answer),
        accepted=_words(answer.get("accepted", [])),
        errors=_table(settings, "errors", _CLASSES),
        states=_table(settings, "states", tuple(ReportedState)),
        query=_template("query", query, QUERY_FIELDS, credentials) if query else None,
        queried=_paths("query", query),
        receipt=_paths("receipt", receipt) if receipt else None,
        signature_header=_text(receipt, "receipt", "signature_header").lower(),
        check=_optional_check(settings, credentials),
        credentials=credentials,
    )
    _refuse_gaps(description)
    return description


def find(document: object, path: Path) -> object:
    """What stands at the path; None where nothing does."""
    if not path:
        return None
    for key in path:
        if isinstance(document, dict):
            document = document.get(key)
        elif isinstance(document, list) and _is_position(key) and int(key) < len(document):
            document = document[int(key)]
        else:
            return None
    return document


def _is_position(key: str) -> bool:
    """Python does not read numbers of thousands of digits."""
    return key.isdecimal() and len(key) <= _LONGEST_POSITION


def word(value: object) -> str:
    """A code or a status as the tables have it: true and 7 are "true" and "7"; "" for what is no word."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else ""


def _refuse_gaps(description: Description) -> None:
    if not description.answer.id and not (description.answer.status and description.accepted):
        raise ValueError("answer.id must be given, or answer.status and answer.accepted: else nothing is accepted.")
    if description.accepted and not description.answer.status:
        raise ValueError("answer.status must be given, since answer.accepted lists its words.")
    if (description.query and not description.queried.status) or (
        description.receipt and not description.receipt.status
    ):
        raise ValueError("query.status and receipt.status must be given where there is a query or a receipt.")
    needed = "receipt_secret" if description.signature_header else "receipt_token"
    if description.receipt and not description.credentials.get(needed):
        raise ValueError(f"{needed} must be given in the credentials: receipts are genuine by it.")


def _section(settings: Mapping[str, Any], name: str, allowed: Collection[str]) -> Mapping[str, Any]:
    value = settings.get(name, {})
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object.")  # noqa: TRY004 - the admin shows ValueError
    _refuse_others(f"{name}.", value, allowed)
    return value


def _refuse_others(path: str, given: Mapping[str, Any], allowed: Collection[str]) -> None:
    for name in given:
        if name not in allowed:
            raise ValueError(f"{path}{name} is no setting of this kind of route: there are {', '.join(allowed)}.")


def _text(section: Mapping[str, Any], path: str, name: str, default: str = "") -> str:
    value = section.get(name, default)
    if not isinstance(value, str):
        raise ValueError(f"{path}.{name} must be a text.")  # noqa: TRY004 - the admin shows ValueError
    return value


def _paths(path: str, section: Mapping[str, Any]) -> Paths:
    names = (*_ANSWER, "attempt", "list")
    given = {name: text for name in names if (text := _text(section, path, name))}
    for name, text in given.items():
        if not all(text.split(".")):
            raise ValueError(f"{path}.{name} must be names with dots between them, as in data.0.id.")
        if any(key.isdecimal() and not _is_position(key) for key in text.split(".")):
            raise ValueError(f"{path}.{name} must have positions in lists of at most {_LONGEST_POSITION} digits.")
    return Paths(**{name: tuple(text.split(".")) for name, text in given.items()})


def _words(value: object) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError("answer.accepted must be a list of words.")
    return frozenset(value)


def _table(settings: Mapping[str, Any], name: str, allowed: Sequence[Any]) -> Mapping[str, Any]:
    """Their words and ours. Each of `allowed` is a member of one StrEnum."""
    ours = {str(member): member for member in allowed}
    given = settings.get(name, {})
    if not isinstance(given, Mapping) or not all(isinstance(value, str) and value in ours for value in given.values()):
        raise ValueError(f"{name} must be an object of their words, each with one of {', '.join(sorted(ours))}.")
    return {theirs: ours[value] for theirs, value in given.items()}


def _optional_check(settings: Mapping[str, Any], credentials: Mapping[str, str]) -> Template | None:
    section = _section(settings, "check", _TEMPLATE)
    return _template("check", section, (), credentials) if section else None


def _template(
    path: str, section: Mapping[str, Any], fields: Collection[str], credentials: Mapping[str, str]
) -> Template:
    method = _text(section, path, "method", "POST" if path == "request" else "GET")
    if method not in _METHODS:
        raise ValueError(f"{path}.method must be one of {', '.join(_METHODS)}.")
    url, body = _text(section, path, "url"), section.get("body")
    if not _is_address(url):
        raise ValueError(f"{path}.url must be http:// or https://, a host without fields, and what follows.")
    if _FREE_FIELDS & set(_named(urlsplit(url).path)):
        raise ValueError(f"{path}.url must name {' and '.join(sorted(_FREE_FIELDS))} after the ? only.")
    headers = _headers(path, section.get("headers", {}), credentials)
    for name in _named([url, body]):
        _refuse_unknown_field(path, name, fields, credentials)
    return Template(method, url, headers, body)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_port = (parts.port or 1) > 0
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and is_port and not set("{@") & set(parts.netloc)


def _headers(path: str, headers: object, credentials: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(headers, Mapping):
        raise ValueError(f"{path}.headers must be an object.")  # noqa: TRY004 - the admin shows ValueError
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise ValueError(f"{path}.headers must have names of letters, digits and -, and none of the connection's.")
        if not isinstance(value, str) or not _is_line(value):
            raise ValueError(f"{path}.headers.{name} must be one line of ASCII.")
        for found in _named(value):
            _refuse_unknown_field(f"{path}.headers.{name}", found, _HEADER_FIELDS, credentials)
            if not _is_line(credentials.get(found.removeprefix(_CREDENTIAL), "")):
                raise ValueError(f"{found.removeprefix(_CREDENTIAL)} must be one line of ASCII: it goes into a header.")
    return headers


def _is_line(text: str) -> bool:
    return text.isascii() and all(character.isprintable() for character in text)


def _refuse_unknown_field(path: str, name: str, fields: Collection[str], credentials: Mapping[str, str]) -> None:
    if name.startswith(_CREDENTIAL) and name.removeprefix(_CREDENTIAL) not in credentials:
        raise ValueError(f"{name.removeprefix(_CREDENTIAL)} must be given in the credentials: {path} names it.")
    if not name.startswith(_CREDENTIAL) and name not in fields:
        shown = ", ".join([*sorted(fields), "credentials.<name>"])
        raise ValueError(f"{path} names the field {{{name}}}; there are {shown}.")


def _named(node: object) -> Iterator[str]:
    """The fields that a template names, at any depth."""
    if isinstance(node, str):
        yield from _FIELD.findall(node)
    for child in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from _named(child)


def _filled(node: object, fields: Mapping[str, Value]) -> object:
    """A template with its fields filled in: a text that is one field alone becomes its value, a number stays one."""
    if isinstance(node, str):
        alone = _FIELD.fullmatch(node)
        return fields[alone[1]] if alone else _FIELD.sub(lambda found: str(fields[found[1]]), node)
    if isinstance(node, Mapping):
        return {name: _filled(child, fields) for name, child in node.items()}
    return [_filled(child, fields) for child in node] if isinstance(node, list) else node

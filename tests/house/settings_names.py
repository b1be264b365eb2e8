"""Which environment variables modules read, found in their text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

#: Methods of environ.Env that take a value, not the name of a variable.
_TAKE_VALUES = frozenset({"db_url_config", "cache_url_config", "email_url_config", "search_url_config"})


class UnreadableError(Exception):
    """A variable is read in a way that does not show its name."""


def environment_names(source: str) -> set[str]:
    """The names that `env.<type>("NAME")` reads, directly or through functions that pass their first argument on.

    Raises UnreadableError where a name is worked out, or the environment is read past `env`.
    """
    tree = ast.parse(source)
    _refuse_other_ways(tree)
    readers = _readers(tree)
    names: set[str] = set()
    for call, parameter in _calls_with_parameter(tree):
        if not _reads(call, readers):
            continue
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            names.add(first.value)
        elif not (parameter and isinstance(first, ast.Name) and first.id == parameter):
            raise UnreadableError(f"line {call.lineno}: write the variable's name as the first argument")
    return names


def _readers(tree: ast.Module) -> set[str]:
    """Functions that read the variable that their first argument names; those that call such ones too."""
    readers: set[str] = set()
    while found := {
        function.name
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
        and function.name not in readers
        and any(_passes_on(call, function, readers) for call in ast.walk(function) if isinstance(call, ast.Call))
    }:
        readers |= found
    return readers


def _passes_on(call: ast.Call, function: ast.FunctionDef, readers: set[str]) -> bool:
    first = call.args[0] if call.args else None
    return _reads(call, readers) and isinstance(first, ast.Name) and first.id == _first_parameter(function)


def _first_parameter(function: ast.FunctionDef) -> str:
    return function.args.args[0].arg if function.args.args else ""


def _calls_with_parameter(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Every call, with the first parameter of the function of the module that it stands in."""
    for statement in tree.body:
        parameter = _first_parameter(statement) if isinstance(statement, ast.FunctionDef) else ""
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                yield node, parameter


def _reads(call: ast.Call, readers: set[str]) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in readers or function.id == "env"
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "env"
        and function.attr not in _TAKE_VALUES
    )


def _refuse_other_ways(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if _is_of_os(node, "environ") or _is_of_os(node, "getenv"):
            raise UnreadableError("the settings read the environment through env, and not through os")


def _is_of_os(node: ast.AST, name: str) -> bool:
    """Whether it is `os.<name>`."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    )


def names_read_through_os(source: str) -> set[str]:
    """The names in `os.environ["NAME"]`, `os.environ.get("NAME")` and `os.getenv("NAME")`; not what is written."""
    found = (_name_read_through_os(node) for node in ast.walk(ast.parse(source)))
    return {name.value for name in found if isinstance(name, ast.Constant) and isinstance(name.value, str)}


def _name_read_through_os(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_of_os(node.value, "environ"):
        return node.slice
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute)):
        return None
    asks = _is_of_os(node.func, "getenv") or (node.func.attr == "get" and _is_of_os(node.func.value, "environ"))
    return node.args[0] if asks else None

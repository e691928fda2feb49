"""Runs pytest inside a sandbox and writes signed outcomes. Standard library and pytest; for Python 3.9 or later.

The code under test runs in this process and can do what this process can. What it can't do is to have outcomes counted
by ending early, by printing or writing a report of its own, by changing pytest, or by objects that equal everything:
outcomes that aren't signed count for nothing, nor does a run that hasn't come to its end; they are taken from one place
only; after each test pytest's code and plugins are compared with what they were, and classes that
define equality are tried.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
import sysconfig
import types
import unittest.mock  # noqa: F401 - compared, so loaded before anybody can change it
from collections.abc import Callable
from typing import Any

import _pytest.reports
import _pytest.runner
import pytest

_GUARDED = ("_pytest", "pytest", "pluggy", "unittest", "hmac", "hashlib", "json", "builtins")
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, classmethod, staticmethod, property)
_HEAP_TYPE = 1 << 9  # of a type's flags: it was made by a class statement
# By pytest itself, when it looks for conftest files.
_REPLACED = "_getini_unknown_type"


def main() -> None:
    """Run what the rest of the input asks for.

    That is an object in JSON: `key` in hex, `results` the path to write to, `arguments` for pytest, `trusted` files of
    the workspace whose classes may be as they like.
    """
    given = json.loads(sys.stdin.read())
    send = _sender(bytes.fromhex(given.pop("key")), given["results"])
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    sys.path.insert(0, os.getcwd())
    sys.argv[:] = ["pytest"]
    pytest.main(given["arguments"], plugins=[Reporter(send, _trusted(given["trusted"]))])
    os._exit(0)


class Reporter:
    """A plugin that sends each test's outcome.

    Args:
        send: signs and writes a message.
        trusted: beginnings of the names of files whose classes needn't be tried.
    """

    def __init__(self, send: Callable[[Any], None], trusted: tuple[str, ...]) -> None:
        self._send = send
        self._trusted = trusted
        self._print: list[tuple[Any, str, Any, Any]] = []
        self._outcomes: dict[str, str] = {}
        self._plugins: Any = None
        self._way: list[Any] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        """Installed plugins have been loaded, which may well change pytest; nothing of the workspace has."""
        self._print = _fingerprint()
        self._plugins = early_config.pluginmanager

    def pytest_runtest_logreport(self, report: _pytest.reports.TestReport) -> None:
        """A phase of a test has ended."""
        way = _way_here()
        self._way = self._way or way
        if type(report) is not _pytest.reports.TestReport or way != self._way:
            self._send(["", "tampered"])
        so_far = self._outcomes.get(report.nodeid, "passed")
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        self._outcomes[report.nodeid] = outcome if so_far == "passed" else so_far
        if report.when == "teardown":
            self._send([report.nodeid, self._outcomes.pop(report.nodeid)])
            if not self._untouched():
                self._send(["", "tampered"])

    def pytest_collectreport(self, report: _pytest.reports.CollectReport) -> None:
        """A file was read, or could not be."""
        if report.failed:
            self._send([report.nodeid, "error"])

    def _untouched(self) -> bool:
        plugins = all(_is_trusted(plugin, self._trusted) for plugin in self._plugins.get_plugins())
        return plugins and _same(self._print) and not _equals_everything(self._trusted)


def _sender(key: bytes, path: str) -> Callable[[Any], None]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    count = 0
    callers = [Reporter.pytest_runtest_logreport.__code__, Reporter.pytest_collectreport.__code__]
    sign, digest, dumps, write = hmac.new, hashlib.sha256, json.dumps, os.write

    def send(message: Any) -> None:
        nonlocal count
        if sys._getframe(1).f_code not in callers:
            message = ["", "tampered"]
        text = dumps([count, message])
        count += 1
        write(descriptor, (sign(key, text.encode(), digest).hexdigest() + " " + text + "\n").encode())

    return send


def _way_here() -> list[Any]:
    """The code of all that is under way in this thread, from the caller's caller on."""
    frame: Any = sys._getframe(2)
    way: list[Any] = []
    while frame is not None:
        way.append(frame.f_code)
        frame = frame.f_back
    return way


def _is_trusted(plugin: Any, trusted: tuple[str, ...]) -> bool:
    """Whether a plugin comes with pytest, is installed, is the task's own, or is this one."""
    module = plugin if isinstance(plugin, types.ModuleType) else sys.modules.get(type(plugin).__module__)
    return isinstance(plugin, Reporter) or str(getattr(module, "__file__", "")).startswith(trusted)


def _fingerprint() -> list[tuple[Any, str, Any, Any]]:
    """Functions and classes of all that pytest is made of: where each stands, and what it is."""
    found: list[tuple[Any, str, Any, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in _GUARDED:
            continue
        for attribute, value in list(vars(module).items()):
            if isinstance(value, (type, *_FUNCTIONS)):
                found.append((module, attribute, value, getattr(value, "__code__", None)))
            if isinstance(value, type) and value.__module__ == name and name != "builtins":
                for inner, held in list(vars(value).items()):
                    if isinstance(held, _FUNCTIONS) and inner != _REPLACED:
                        found.append((value, inner, held, getattr(held, "__code__", None)))
    return found


def _same(fingerprint: list[tuple[Any, str, Any, Any]]) -> bool:
    return all(
        vars(owner).get(name) is value and getattr(value, "__code__", None) is code
        for owner, name, value, code in fingerprint
    )


def _trusted(files: list[str]) -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    installed = (os.path.dirname(os.path.dirname(pytest.__file__)), *(paths[name] for name in ("stdlib", "purelib")))
    return (*(folder + os.sep for folder in installed), *(os.path.abspath(file) for file in files), "<frozen", "<attrs")


def _equals_everything(trusted: tuple[str, ...]) -> bool:
    """Whether there is a class, of no trusted file, whose objects equal whatever they are compared with."""
    return any(_is_anything(kind) for kind in _classes(object) if _defines_equality(kind, trusted))


def _classes(root: Any) -> list[Any]:
    found, known = [root], {root}
    for kind in found:
        below: Any
        for below in type.__subclasses__(kind):
            if below not in known:
                known.add(below)
                found.append(below)
    return found


def _defines_equality(kind: Any, trusted: tuple[str, ...]) -> bool:
    held = vars(kind).get("__eq__")
    if held is None or isinstance(held, types.WrapperDescriptorType):
        return False
    code = getattr(held, "__code__", None)
    return code is None or not code.co_filename.startswith(trusted)


def _is_anything(kind: Any) -> bool:
    instance: Any
    try:
        if issubclass(kind, type):
            instance = type.__new__(kind, "Instance", (), {})
        else:
            builtin = next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)
            instance = builtin.__new__(kind)
        return all(bool(instance == other) for other in (object(), "e3b0c442", -98_765_432_101))
    except BaseException:  # it needs to be made properly, or isn't to be compared like that
        return False


if __name__ == "__main__":
    main()

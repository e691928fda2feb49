"""Tests run in a sandbox, and what can be believed of their outcome."""

from __future__ import annotations

import ast
import hashlib
import hmac
import json
import posixpath
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from agentfly.errors import ConfigError
from agentfly.resources.sandbox import Sandbox

# Python puts the workspace first on its path, and nothing is to be imported from there. The runner is in no module that
# the code under test could import.
_BOOT = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; "
    "exec(compile(sys.stdin.read(int(sys.stdin.readline())), 'runner', 'exec'), {'__name__': '__main__'})"
)
_MOST_RESULTS = 16 << 20


@dataclass(frozen=True)
class TestRun:
    """What came of a run of pytest.

    Attributes:
        outcomes: by node id: `passed`, `failed`, `skipped`, `xfailed`, `error`; a test that did not come to its end
            has none, nor have those of a run that did not.
        tampered: something inside has laid hands on pytest; nothing counts.
        log: what was printed, for people.
    """

    __test__ = False

    outcomes: Mapping[str, str] = field(default_factory=dict)
    tampered: bool = False
    log: str = ""

    def passed(self, tests: Iterable[str]) -> list[bool]:
        """Whether each has passed. The name of a parametrised test stands for all of its cases."""
        return [self._passed(test) for test in tests]

    def _passed(self, test: str) -> bool:
        if self.tampered:
            return False
        exact = self.outcomes.get(test)
        if exact is not None:
            return exact == "passed"
        cases = [outcome for name, outcome in self.outcomes.items() if name.startswith(test + "[")]
        return bool(cases) and all(outcome == "passed" for outcome in cases)


async def run_pytest(
    box: Sandbox, files: Sequence[str], *, timeout: float, python: str = "python3", trusted: Sequence[str] = ()
) -> TestRun:
    """Run the tests of some files of the workspace.

    Args:
        box: best a fresh one: what goes on in its background could change the files.
        files: paths, or node ids.
        timeout: seconds for all of them.
        python: the command of a Python that has pytest.
        trusted: files that the rollout has not written; classes of all others may not equal everything.

    Raises:
        OSError: the sandbox can't be written to.
    """
    key, mark = secrets.token_bytes(32), secrets.token_hex(8)
    folder = posixpath.dirname(files[0].partition("::")[0]) if files else ""
    canaries = [posixpath.join(folder, f"test_{secrets.token_hex(6)}.py") for _ in range(2)]
    for path in canaries:
        await box.write(path, _canary())
    results = f".results-{mark}"
    # Tests that must fail stand before and behind: whoever makes all tests pass makes these pass too.
    arguments = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir=.",
        "--maxfail=0",
        "--tb=short",
        canaries[0],
        *files,
        canaries[1],
    ]
    given = {"key": key.hex(), "results": results, "arguments": arguments, "trusted": list(trusted)}
    stdin = f"{len(_runner())}\n{_runner()}{json.dumps(given)}"
    done = await box.run(f'{python} -s -c "{_BOOT}"', stdin=stdin, timeout=timeout)
    if done.files_lost:
        return TestRun(log=str(done))
    try:
        said = await box.read_bytes(results, max_bytes=_MOST_RESULTS)
    except OSError:
        said = b""
    return judged(read_results(said, key), canaries, str(done))


def judged(messages: Sequence[tuple[str, str]], canaries: Sequence[str], log: str) -> TestRun:
    """A run from its signed messages. Pure.

    Only one that came to its end counts: both canaries have failed, the first and the last of its tests.
    """
    outcomes: dict[str, str] = {}
    tampered = False
    missing = set(canaries)
    for name, outcome in messages:
        of_canary = name.partition("::")[0] in canaries
        missing.discard(name.partition("::")[0])
        if outcome == "tampered" or (of_canary and outcome == "passed"):
            tampered = True
        elif not of_canary:
            # A test that is told of twice has passed when both say so.
            outcomes[name] = outcome if outcomes.get(name, "passed") == "passed" else outcomes[name]
    if missing:
        return TestRun({}, tampered, f"{log}\n[the tests did not come to their end]")
    return TestRun(outcomes, tampered, log)


def read_results(said: bytes, key: bytes) -> list[tuple[str, str]]:
    """The messages that were signed with the key, up to the first that is missing. Pure."""
    messages: list[tuple[str, str]] = []
    for line in said.splitlines():
        signature, _, text = line.partition(b" ")
        if not hmac.compare_digest(signature, hmac.new(key, text, hashlib.sha256).hexdigest().encode()):
            continue
        number, (name, outcome) = json.loads(text)
        if number != len(messages):
            break
        messages.append((name, outcome))
    return messages


def defined_tests(path: str, source: str) -> list[str]:
    """Node ids of the tests that a file defines, as far as its text tells: each must have an outcome.

    Raises:
        ConfigError: it is no Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"the test file {path} is no Python: {error}") from None
    found = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            found.append(f"{path}::{node.name}")
        elif isinstance(node, ast.ClassDef):
            inner = [item.name for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
            found += [f"{path}::{node.name}::{name}" for name in inner if name.startswith("test")]
    return found


def _canary() -> str:
    left, right = secrets.token_hex(4), secrets.token_hex(4)
    return f'def test_{secrets.token_hex(4)}():\n    assert "{left}" == "{right}"\n'


@cache
def _runner() -> str:
    return Path(__file__).with_name("pytest_inside.py").read_text()

"""The tools themselves: methods of a toolbox that is bound to a workspace."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from shlex import quote
from typing import Annotated

from agentfly.envs.sandbox_tools.editing import numbered, replace_exactly
from agentfly.envs.sandbox_tools.history import Change, Histories
from agentfly.envs.sandbox_tools.policy import ShellPolicy
from agentfly.envs.sandbox_tools.workspace import Workspace
from pydantic import Field

from agentfly.agent import ToolResult
from agentfly.context import Context
from agentfly.errors import ToolError
from agentfly.resources.sandbox import Sandbox

_MOST_BYTES = 4 << 20
_MOST_ENTRIES = 400
_MOST_MATCHES = 200
_AROUND = 3  # lines shown before and after a change


class Toolbox:
    """The tools of a workspace, as plain methods; `sandbox_tools` makes tools of them.

    Args:
        workspace: where they work.
        policy: of the shell.
        max_output: characters of an observation.
    """

    def __init__(self, workspace: Workspace, policy: ShellPolicy, max_output: int) -> None:
        self._workspace = workspace
        self._policy = policy
        self._max_output = max_output
        self._histories = Histories()

    async def python(self, code: str, ctx: Context) -> ToolResult:
        """Run Python. Variables live on between calls; the value of a last expression is shown.

        Args:
            code: the program.
        """
        box = await self._workspace.sandbox(ctx)
        result = await box.run_python(code)
        return ToolResult(str(result) or "(no output)", is_error=result.error is not None or result.status != "ok")

    async def shell(self, command: str, ctx: Context) -> ToolResult:
        """Run a shell command in the workspace; each call is a new shell.

        Args:
            command: for bash or sh.
        """
        self._policy.check(command)
        box = await self._workspace.sandbox(ctx)
        result = await box.run(command)
        return ToolResult(str(result) or "(no output)", is_error=result.exit_code != 0)

    async def read_file(
        self, path: str, ctx: Context, start: Annotated[int, Field(ge=1)] = 1, lines: Annotated[int, Field(ge=1)] = 2000
    ) -> str:
        """Read a text file; each line comes with its number before it.

        Args:
            path: of the file.
            start: the first line to show.
            lines: how many to show at most.
        """
        text = await self._text(await self._workspace.sandbox(ctx), path)
        there = text.splitlines()
        if start > max(len(there), 1):
            raise ToolError(f"{path} has {len(there)} lines, there is no line {start}")
        return self._page(there, start, lines) if there else "(the file is empty)"

    async def write_file(self, path: str, content: str, ctx: Context) -> str:
        """Write a whole file; what was in it is replaced, its folders are made.

        Args:
            path: of the file.
            content: all of it.
        """
        box = await self._workspace.sandbox(ctx)
        history = self._histories.of(ctx)
        async with history.lock:
            before = await _content(box, path)
            await _write(box, path, content.encode("utf-8", "replace"))
            history.add(Change(_plain(path), before, content.encode("utf-8", "replace")))
        made = "wrote" if before is not None else "made"
        return f"{made} {path}, {content.count(chr(10)) + bool(content and content[-1] != chr(10))} lines"

    async def edit_file(self, path: str, old: str, new: str, ctx: Context, replace_all: bool = False) -> str:
        """Replace a piece of a file. The old text must stand there exactly, white space included, and only once.

        Args:
            path: of the file.
            old: the text to replace, without line numbers.
            new: what comes in its place.
            replace_all: replace it wherever it stands.
        """
        box = await self._workspace.sandbox(ctx)
        history = self._histories.of(ctx)
        async with history.lock:
            text = await self._text(box, path)
            edit = replace_exactly(text, old, new, everywhere=replace_all)
            before, after = text.encode(), edit.text.encode("utf-8", "replace")
            await _write(box, path, after)
            history.add(Change(_plain(path), before, after))
        places = "" if edit.count == 1 else f" and {edit.count - 1} more"
        first = max(edit.line - _AROUND, 1)
        shown = edit.text.splitlines()[first - 1 : edit.line + new.count("\n") + _AROUND]
        return f"replaced in {path}, line {edit.line}{places}:\n{numbered(shown, first)}"

    async def undo_edit(self, path: str, ctx: Context) -> str:
        """Take back the latest change that write_file or edit_file made to a file; again, the one before it.

        Args:
            path: of the file.
        """
        box = await self._workspace.sandbox(ctx)
        history = self._histories.of(ctx)
        async with history.lock:
            change = history.last(_plain(path))
            if change is None:
                raise ToolError(f"there is no change of {path} to take back")
            if await _content(box, path) != change.after:
                raise ToolError(f"{path} has been changed otherwise since: taking the change back would lose that")
            if change.before is None:
                await box.run(f"rm -- {quote(path)}")
            else:
                await _write(box, path, change.before)
            history.forget(change)
        return f"{path} is as it was before" if change.before is not None else f"{path} is gone, as before"

    async def grep(self, pattern: str, ctx: Context, path: str = ".", ignore_case: bool = False) -> ToolResult:
        """Search files for a regular expression (of grep -E); shows file, number and text of each line found.

        Args:
            pattern: the regular expression.
            path: file or folder to search, with all that is below it.
            ignore_case: capitals and small letters are the same.
        """
        box = await self._workspace.sandbox(ctx)
        flags = "-rnIE" + ("i" if ignore_case else "")
        found = f"grep {flags} --exclude-dir=.git -e {quote(pattern)} -- {quote(path)}"
        result = await box.run(f"{{ {found}; echo $? >&2; }} | head -n {_MOST_MATCHES + 1} | cut -c 1-400")
        lines = result.stdout.splitlines()
        *errors, code = result.stderr.strip().splitlines() or ["2"]
        if not lines:
            if code == "1":
                return ToolResult("nothing found")
            return ToolResult("\n".join(errors) or str(result), is_error=True)
        if len(lines) > _MOST_MATCHES:
            lines[_MOST_MATCHES:] = [f"[more than {_MOST_MATCHES} lines: the rest is left out]"]
        return ToolResult("\n".join(line.removeprefix("./") for line in lines))

    async def list_files(self, ctx: Context, path: str = ".", depth: Annotated[int, Field(ge=1, le=8)] = 2) -> str:
        """List a folder and what is below it; folders end in /, hidden ones are not gone into.

        Args:
            path: of the folder.
            depth: how many levels.
        """
        box = await self._workspace.sandbox(ctx)
        found: list[str] = []
        folders = [(path, "", 1)]
        while folders and len(found) <= _MOST_ENTRIES:
            folder, shown, level = folders.pop(0)
            try:
                entries = await box.list(folder)
            except OSError as error:
                if level == 1:
                    raise _explained(error, folder) from None
                continue
            for entry in entries:
                is_folder = entry.kind == "folder"
                found.append(f"{shown}{entry.name}{'/' if is_folder else ''}")
                if is_folder and level < depth and not entry.name.startswith("."):
                    folders.append((posixpath.join(folder, entry.name), f"{shown}{entry.name}/", level + 1))
        more = len(found) > _MOST_ENTRIES
        notice = [f"[more than {_MOST_ENTRIES} entries: the rest is left out]"] if more else []
        return "\n".join(sorted(found[:_MOST_ENTRIES]) + notice) or "(empty)"

    async def submit(self, answer: str = "") -> str:
        """Hand in the work and end. What lies in the workspace counts.

        Args:
            answer: the answer, where the task asks for one.
        """
        return answer or "submitted"

    def _page(self, there: Sequence[str], start: int, lines: int) -> str:
        """As many whole lines as an observation holds, and where to read on."""
        room = self._max_output - 100
        shown: list[str] = []
        for number, line in enumerate(there[start - 1 : start - 1 + lines], start=start):
            text = numbered([line], number)
            if shown and len(text) + 1 > room:
                break
            shown.append(text)
            room -= len(text) + 1
        last = start + len(shown) - 1
        if last < len(there):
            shown.append(f"[lines {start} to {last} of {len(there)}; read on with start={last + 1}]")
        return "\n".join(shown)

    async def _text(self, box: Sandbox, path: str) -> str:
        content = await _content(box, path)
        if content is None:
            raise ToolError(f"there is no file {path}")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise ToolError(f"{path} is no text in UTF-8") from None


async def _content(box: Sandbox, path: str) -> bytes | None:
    """Of a file; None when there is none.

    Raises:
        ToolError: it can't be read.
    """
    try:
        content = await box.read_bytes(path, max_bytes=_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _explained(error, path) from None
    if len(content) > _MOST_BYTES:
        raise ToolError(f"{path} has more than {_MOST_BYTES >> 20} MiB: too large for this tool")
    return content


async def _write(box: Sandbox, path: str, content: bytes) -> None:
    try:
        await box.write(path, content)
    except OSError as error:
        raise _explained(error, path) from None


def _explained(error: OSError, path: str) -> ToolError:
    return ToolError(f"{path}: {(error.strerror or str(error)).lower()}")


def _plain(path: str) -> str:
    return posixpath.normpath(posixpath.join("/workspace", path))

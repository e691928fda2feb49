"""Which commands the shell tool runs. A fence that tells a model what is wanted; what holds it is the sandbox."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentfly.errors import ToolError

_OPERATORS = "();<>|&\n"
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
# What is quoted is no operator, which words don't show once they are read: it stands for itself in other signs.
_HIDDEN = {ord(sign): 0xE000 + place for place, sign in enumerate(_OPERATORS)}
_SHOWN = {hidden: sign for sign, hidden in _HIDDEN.items()}
_OPERATOR = re.compile(f"[{re.escape(_OPERATORS)}]+")
_REDIRECTION = re.compile(r"[<>]+[&|]?")
_SUBSTITUTION = ("$(", "`", "<(", ">(", "$'", '$"', "${")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
# Programs that run the program which their next word names.
_RUNNERS = frozenset("command builtin env exec nice nohup stdbuf sudo time timeout xargs setsid".split())
_KEYWORDS = frozenset("if then elif else while until do { ! eval time".split())


@dataclass(frozen=True)
class ShellPolicy:
    """What the `shell` tool may run.

    With neither list every command runs, and nothing is asked. With `allow` only commands that plainly consist of
    these programs run: no substitutions, no assignments, programs written as they stand here. With `deny` commands
    that plainly call one of these programs are refused.

    This is no protection: a program that is allowed may start another one. It spares a model detours.

    Attributes:
        allow: names of programs; None allows all.
        deny: names of programs.
    """

    allow: Sequence[str] | None = None
    deny: Sequence[str] = ()

    def check(self, command: str) -> None:
        """See that a command may run.

        Raises:
            ToolError: it may not; in words for the model.
        """
        if self.allow is not None:
            self._check_allowed(command)
        for program in _called(command) if self.deny else ():
            if posixpath.basename(program) in self.deny:
                raise ToolError(f"{posixpath.basename(program)!r} is not to be used here")

    def _check_allowed(self, command: str) -> None:
        allowed = f"only these programs are: {', '.join(self.allow or ())}"
        for sign in _SUBSTITUTION:
            if sign in command:
                raise ToolError(f"{sign!r} in a command is not allowed here; {allowed}")
        for program in _programs(_words(command)):
            if program not in (self.allow or ()):
                raise ToolError(f"{program.translate(_SHOWN)!r} is not allowed here; {allowed}")


def _words(command: str) -> list[str]:
    """Words and operators; operators in quotes, or behind a backslash, are hidden in their words.

    Raises:
        ToolError: a quote isn't closed.
    """
    plain = _QUOTED.sub(lambda quoted: quoted[0].translate(_HIDDEN), command)
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
    try:
        return list(lexer)
    except ValueError as error:
        raise ToolError(f"the command can't be read: {error}") from None


def _programs(words: Sequence[str]) -> Iterator[str]:
    """The first word of each simple command."""
    begins, target = True, False
    for word in words:
        if _OPERATOR.fullmatch(word):
            begins, target = begins or _separates(word), word[-1] in "<>" or bool(_REDIRECTION.fullmatch(word))
        elif target:
            target = False
        elif begins:
            begins = False
            yield word


def _called(command: str) -> Iterator[str]:
    """All programs that a command plainly calls, in substitutions and behind others such as `sudo` too."""
    opened = re.sub(r"\$\(|`|[<>]\(", ";", command).replace(")", ";")
    begins = True
    for word in _words(opened):
        if _OPERATOR.fullmatch(word):
            begins = begins or _separates(word)
        elif begins and word not in _KEYWORDS and not _ASSIGNMENT.fullmatch(word) and not word.startswith("-"):
            begins = posixpath.basename(word) in _RUNNERS
            yield word


def _separates(operator: str) -> bool:
    """Whether a new command may begin behind it."""
    return bool(_REDIRECTION.sub("", operator))

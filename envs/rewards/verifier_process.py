"""The other side of `SymbolicVerifier`: a question in a line of JSON, the verdict in a line."""

from __future__ import annotations

import json
import resource
import sys

_MEMORY = 2 << 30


def main() -> None:
    """Answer until the input ends."""
    from math_verify import LatexExtractionConfig, parse, verify
    from math_verify.parser import ExprExtractionConfig

    kinds = (LatexExtractionConfig(), ExprExtractionConfig())

    def read(text: str) -> list[object]:
        # A bare formula is taken for LaTeX only between dollars.
        for candidate in (text,) if "$" in text else (f"${text}$", text):
            if found := parse(candidate, kinds, parsing_timeout=None):
                return list(found)
        return []

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    for line in sys.stdin:
        question = json.loads(line)
        try:
            said = read(question["said"])
            equal = bool(said) and any(verify(read(right), said, timeout_seconds=None) for right in question["answers"])
        except Exception:  # sympy raises nearly anything on rubbish
            equal = False
        sys.stdout.write(json.dumps(equal) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""What README and docs show is real: the Python runs, the jobs load, the commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from agentfly.training.job import TrainingJob

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "design.md"], ids=lambda page: page.name)
def test_python_runs(page: Path) -> None:
    variables: dict[str, object] = {"__name__": page.stem}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), variables)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_jobs_load(page: Path) -> None:
    for block in blocks(page, "yaml"):
        TrainingJob.model_validate(yaml.safe_load(block))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_target_in_the_readme_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target

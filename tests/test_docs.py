"""What README and docs show is real: the Python runs, the jobs load, the commands and their options exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rollout.tiny_tokenizer import build_folder
from typer.main import get_command

from agentfly.cli.main import app
from agentfly.models.tiny import build_model
from agentfly.training.job import TrainingJob
from agentfly.training.loading import load_job

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


def commands() -> list[str]:
    """What the pages tell to type after `agentfly`."""
    told = [block for page in PAGES for block in blocks(page, "sh")]
    return sorted({line for block in told for line in re.findall(r"(?:^|&& )agentfly ([^#'\n]*)", block, re.MULTILINE)})


@pytest.mark.parametrize("command", commands())
def test_commands_take_what_is_shown(command: str) -> None:
    name, *arguments = shlex.split(command)
    known = get_command(app)
    with known.make_context("agentfly", [name], resilient_parsing=True) as context:
        found = known.get_command(context, name)  # type: ignore[attr-defined]
        assert found is not None, name
        found.make_context(name, arguments, parent=context)
    overrides = [argument for argument in arguments if re.match(r"[\w.]+=", argument)]
    load_job(ROOT / "examples" / "calculator" / "job.yaml", overrides)


@pytest.mark.slow
def test_the_agent_of_the_readme_runs(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(blocks(ROOT / "README.md", "python")[0])
    build_folder(tmp_path / "model")
    build_model(tmp_path / "model")
    done = subprocess.run([sys.executable, "agent.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^0\.0 (stop|max_tokens)\b", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_target_in_the_readme_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target

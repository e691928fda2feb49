"""`ray job submit`, as the README shows it: a folder goes to a cluster, with or without agentfly there, and trains."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Collection
from pathlib import Path
from uuid import uuid4

import pytest
from cli.ray_head import ray_head
from cli.running import write_job
from processes import left_after, marked

from agentfly.rollout.storage import read_jsonl

ROOT = Path(__file__).parent.parent.parent
PYTHON = Path(sys.executable)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "calculator"
    shutil.copytree(ROOT / "examples" / "calculator", place, ignore=shutil.ignore_patterns("model", "runs"))
    return place


def test_a_folder_trains_on_a_cluster(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "shared"
    with ray_head(PYTHON.parent) as head:
        done = head.submit(folder, f"python make_model.py && agentfly train job.yaml steps=2 output={output}")
    assert done.returncode == 0, done.stdout
    assert "succeeded" in done.stdout
    for step in (1, 2):
        assert re.search(rf"^step {step}/2 .*reward [\d.]+", done.stdout, re.MULTILINE), done.stdout
    checkpoint = output / "checkpoints" / "step-00000002"
    assert f"done after 2 steps; checkpoint in {checkpoint}" in done.stdout
    assert (checkpoint / "model.safetensors").is_file()
    assert len(list(read_jsonl(output / "trajectories.jsonl"))) == 2 * 4 * 4


def test_a_cluster_without_agentfly_installs_the_wheel_that_comes_along(folder: Path, tmp_path: Path) -> None:
    build_wheel(tmp_path / "source", folder)
    environment = re.search(r"--runtime-env-json '(.*)'", (ROOT / "README.md").read_text())
    assert environment is not None
    with ray_head(bare_python(tmp_path / "bare")) as head:
        done = head.submit(
            folder,
            "python -c 'import agentfly; print(agentfly.__file__)' && python make_model.py "
            "&& agentfly train job.yaml steps=1",
            "--runtime-env-json",
            environment[1],
        )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^/.*/runtime_resources/.*/agentfly/__init__.py", done.stdout, re.MULTILINE), done.stdout
    assert "done after 1 steps" in done.stdout


def test_a_job_that_is_stopped_leaves_nothing_on_the_cluster(tmp_path: Path) -> None:
    folder, mark, nap = tmp_path / "job", f"agentfly-stop-{uuid4().hex}", f"3599.{uuid4().int % 10**12}"
    write_job(folder)
    (tmp_path / "hold").touch()
    variables = {"AGENTFLY_RUN_MARK": mark, "HOLD": str(tmp_path / "hold"), "NAP": nap}
    with ray_head(PYTHON.parent) as head:
        options = ("--no-wait", "--submission-id", "held", "--runtime-env-json", json.dumps({"env_vars": variables}))
        begun = head.submit(folder, f"agentfly train job.yaml output={tmp_path / 'out'}", *options)
        assert begun.returncode == 0, begun.stdout
        deadline = time.monotonic() + 240
        while not any(command.startswith("sleep") for command in marked(nap, where="cmdline").values()):
            assert time.monotonic() < deadline, head.job("logs", "held").stdout
            time.sleep(0.1)
        its = marked(mark)
        assert any("ResourceHost" in command for command in its.values()), "its hosts are found by the mark"
        stopped = head.job("stop", "held")
        assert stopped.returncode == 0, stopped.stdout
        assert left_after(mark, 60) == {}
        assert marked(nap, where="cmdline") == {}
        deadline = time.monotonic() + 10
        while groups := groups_of(its):
            assert time.monotonic() < deadline, groups
            time.sleep(0.1)
        assert "Job 'held' was stopped" in head.job("status", "held").stdout
        assert head.submit(folder, "true").returncode == 0, "the cluster lives on"


def groups_of(makers: Collection[int]) -> list[str]:
    """Cgroups that processes have made."""
    found = [path.name for path in Path("/sys/fs/cgroup").rglob("agentfly-*")]
    return [name for name in found if int(name.split("-")[2]) in makers]


def build_wheel(source: Path, target: Path) -> None:
    """Build the wheel from a copy, since setuptools leaves a `build` folder behind and packs what is in it."""
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in ("agentfly", "backends", "envs"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([PYTHON, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", target, source], check=True)


def bare_python(place: Path) -> Path:
    """The `bin` of a Python that has everything agentfly depends on, but not agentfly."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", place], check=True)
    here, there = (Path(sysconfig.get_path("purelib", vars={"base": str(base)})) for base in (sys.prefix, place))
    for entry in here.iterdir():
        if "agentfly" not in entry.name and entry.name != "__pycache__":
            (there / entry.name).symlink_to(entry)
    ray = place / "bin" / "ray"
    ray.write_text(f"#!{place}/bin/python\nfrom ray.scripts.scripts import main\nmain()\n")
    ray.chmod(0o755)
    code = "import ray, torch; import agentfly"
    tried = subprocess.run(
        [place / "bin" / "python", "-c", code], cwd=place, capture_output=True, text=True, check=False
    )
    assert "No module named 'agentfly'" in tried.stderr
    return place / "bin"

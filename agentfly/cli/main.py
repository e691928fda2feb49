"""`agentfly`: train, rollout, plan, pools, demo, doctor."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

# What a command needs is imported in the command: `agentfly --help` answers at once.

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Reinforcement learning of LLM agents.",
)

Job = Annotated[Path, typer.Argument(help="The job, a YAML file.", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="key=value pairs that replace the job's, such as optimizer.lr=3e-4.")
]


@app.command()
def train(
    job: Job,
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option(help="Go on from the newest checkpoint in the job's output.")] = False,
) -> None:
    """Train the agent of a job."""
    from agentfly.cli.train import run_train

    run_train(job, overrides or [], resume=resume)


@app.command()
def rollout(
    job: Job,
    overrides: Overrides = None,
    samples: Annotated[int, typer.Option(min=1, help="Rollouts of each task.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first tasks.")] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write the trajectories as Parquet too.")] = False,
) -> None:
    """Run the agent of a job on its evaluation tasks (else on its tasks) and sum up."""
    from agentfly.cli.rollout import run_rollout

    run_rollout(job, overrides or [], samples=samples, limit=limit, parquet=parquet)


@app.command()
def plan(
    job: Job,
    overrides: Overrides = None,
    events: Annotated[Path | None, typer.Option(help="The event log of a run, to learn times from.")] = None,
    trajectories: Annotated[Path | None, typer.Option(help="Trajectories (JSONL), to learn times from.")] = None,
    times: Annotated[Path | None, typer.Option(help="A YAML file of times; see docs/planning.md.")] = None,
    target: Annotated[float | None, typer.Option(min=1e-6, help="Rollouts a second that are wanted.")] = None,
    price: Annotated[list[str] | None, typer.Option(help="POOL=PRICE of a slot for an hour; may be repeated.")] = None,
    rollouts: Annotated[int | None, typer.Option(min=1, help="How many to simulate.")] = None,
    continuous: Annotated[bool, typer.Option("--continuous", help="No training steps, as `agentfly rollout`.")] = False,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Simulate a job's pools: what holds it up, what sizes a throughput needs, what that costs."""
    from agentfly.cli.plan import PlanOptions, run_plan

    options = PlanOptions(
        rollouts, continuous, events, trajectories, times, target, price or (), seed=seed, as_json=json
    )
    run_plan(job, overrides or [], options)


pools = typer.Typer(help="The pools of a running job: a live table, and their sizes.")
app.add_typer(pools, name="pools")

Address = Annotated[
    str | None, typer.Option(help="Of the Ray cluster; without it RAY_ADDRESS, else the one on this machine.")
]
JobName = Annotated[str | None, typer.Option("--job", help="Which job, when several run.")]
PoolName = Annotated[str, typer.Argument(help="The pool, as the table names it.", show_default=False)]


@pools.callback(invoke_without_command=True)
def show_pools(
    context: typer.Context,
    address: Address = None,
    job: JobName = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON instead of the table.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """The pools of a running job, until it ends."""
    context.obj = (address, job)
    if context.invoked_subcommand is None:
        from agentfly.cli.pools import show_pools

        show_pools(address, job, once=once, as_json=json, interval=interval)


@pools.command()
def resize(
    context: typer.Context,
    pool: PoolName,
    size: Annotated[int, typer.Argument(min=1, help="Slots at most from now on.", show_default=False)],
    smallest: Annotated[
        int | None, typer.Option("--min", min=0, help="Slots at least; without it the spec's own.", show_default=False)
    ] = None,
    address: Address = None,
    job: JobName = None,
) -> None:
    """Change a pool's size while the job runs: leases that are too many end in their time."""
    from agentfly.cli.pools import resize_pool

    resize_pool(address or context.obj[0], job or context.obj[1], pool, size, smallest)


@pools.command()
def drain(context: typer.Context, pool: PoolName, address: Address = None, job: JobName = None) -> None:
    """Grant nothing more from a pool: its leases end in their time, who waits goes on waiting until `resize`."""
    from agentfly.cli.pools import resize_pool

    resize_pool(address or context.obj[0], job or context.obj[1], pool, 0, 0)


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for what the demo leaves.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 20,
) -> None:
    """Train a tiny model on tools in a sandbox, from nothing, in a few minutes."""
    from agentfly.cli.demo.command import run_demo

    run_demo(output, seed=seed, steps=steps)


@app.command()
def envs(
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of the table.")] = False,
) -> None:
    """The environments there are: size, licence, needs, and whether they can run on this machine."""
    from agentfly.cli.envs import run_envs

    run_envs(as_json=as_json)


@app.command()
def serve(
    path: Annotated[Path, typer.Argument(help="The model, a Hugging Face folder.", show_default=False)],
    engine: Annotated[str, typer.Option(help="The engine that runs it.")] = "transformers",
    family: Annotated[str | None, typer.Option(help="Of its chat format; found out otherwise.")] = None,
    name: Annotated[str | None, typer.Option(help="What clients call it; the folder's name otherwise.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    keys_env: Annotated[str, typer.Option(help="Variable with the keys, commas between them.")] = "AGENTFLY_API_KEYS",
    replicas: Annotated[int, typer.Option(min=1, help="Engines at least.")] = 1,
    max_replicas: Annotated[int | None, typer.Option(min=1, help="Engines at most, by what waits.")] = None,
    max_concurrency: Annotated[int, typer.Option(min=1, help="Calls at once on an engine.")] = 256,
    max_waiting: Annotated[int, typer.Option(min=1, help="Calls that may wait; the next gets 429.")] = 1000,
    http_replicas: Annotated[int, typer.Option(min=1, help="Processes that speak HTTP.")] = 1,
    num_gpus: Annotated[float, typer.Option(min=0, help="GPUs of an engine.")] = 0.0,
) -> None:
    """Serve a model to OpenAI's and Anthropic's clients, on Ray Serve."""
    from agentfly.cli.serve import run_serve
    from agentfly.models.spec import ModelSpec

    model = ModelSpec(
        engine=engine,
        path=str(path.resolve()),
        family=family,
        replicas=replicas,
        max_replicas=max_replicas,
        max_concurrency=max_concurrency,
        max_waiting=max_waiting,
        num_gpus=num_gpus,
        idle_ttl=300.0 if max_replicas else None,
    )
    run_serve(model, name=name, host=host, port=port, keys_env=keys_env, http_replicas=http_replicas)


@app.command()
def doctor() -> None:
    """Say what this machine has, and what each extra lacks."""
    from agentfly.cli.doctor import run_doctor

    raise typer.Exit(run_doctor())


def main() -> None:
    """Entry point: a job that is wrong ends with one line for each problem and exit code 2, a failed one with 1."""
    # The bars of models that are loaded and saved would stand between the steps.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from agentfly.errors import AgentFlyError, ConfigError

    try:
        app()
    except AgentFlyError as error:
        print(f"agentfly: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2 if isinstance(error, ConfigError) else 1) from None
    except OSError as error:  # a full disk, a folder that was taken away: nothing that a stack would explain
        where = f" ({error.filename})" if error.filename else ""
        print(f"agentfly: {error.strerror or error}{where}", file=sys.stderr)  # noqa: T201
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

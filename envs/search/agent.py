"""An agent that searches before it answers."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly.envs.episodes import Move
from agentfly.envs.rewards import exact, f1
from agentfly.envs.search.index import SearchIndex

from agentfly.agent import Agent, tool, weighted
from agentfly.context import Context, Task
from agentfly.resources import ResourceSpec

SYSTEM = "Answer the question. Search the corpus as often as you need. Then answer with <answer>a few words</answer>."


def search_index(corpus: str | None = None, *, permits: int = 1024) -> ResourceSpec[SearchIndex]:
    """One shared index, in one process.

    Args:
        corpus: JSONL file of passages, on the machine of the host; None takes the made-up world.
        permits: rollouts that use it at once.
    """
    return ResourceSpec(
        SearchIndex,
        args={"corpus": corpus},
        name="search",
        shared=True,
        slots=permits,
        max_size=permits,
        start_timeout=3600.0,
    )


def make_agent(index: ResourceSpec[SearchIndex], *, results: int = 3, max_turns: int = 6) -> Agent:
    """An agent with the tool `search` on an index.

    Args:
        index: made by `search_index`.
        results: passages that a search shows.
        max_turns: completions at most.
    """

    async def search(query: str, ctx: Context) -> str:
        """Search the corpus.

        Args:
            query: a few words; rare ones, such as names, find most.
        """
        hits = await (await ctx.acquire(index, scope="global")).search(query, results)
        shown = [f"[{number}] {hit.passage.title}: {hit.passage.text}" for number, hit in enumerate(hits, start=1)]
        return "\n".join(shown) or "Nothing was found."

    reward = weighted({exact(): 0.5, f1(): 0.5}, name="answered")
    tools = [tool(timeout=30, max_output=4000, claims=[index])(search)]
    return Agent(tools=tools, reward=reward, system=SYSTEM, max_turns=max_turns, max_invalid_calls=3)


INDEX = search_index()
agent = make_agent(INDEX)


def oracle(task: Task) -> Sequence[Move]:
    """Moves that solve a task of `make_tasks`."""
    searches = [Move("search", {"query": query}) for query in task["searches"]]
    return [*searches, Move(None, answer=f"<answer>{task['answer'][0]}</answer>")]

"""An agent that shops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentfly.envs.episodes import EpisodeHandle, GameEnvironment, Move
from agentfly.envs.webshop.catalogue import catalogue
from agentfly.envs.webshop.shop import Shop
from agentfly.envs.webshop.tasks import open_shop

from agentfly.agent import Agent
from agentfly.context import Task
from agentfly.resources.environment import EnvironmentSpec

SYSTEM = "You shop for a customer. Search, look at products, choose the options that are asked for, then buy."


class WebShop(GameEnvironment):
    """A shop with one customer at a time."""

    def open(self, row: Mapping[str, Any]) -> Shop:
        return open_shop(row)


SHOP = EnvironmentSpec(WebShop, max_steps=50, name="webshop", slots=256, max_size=4096)
_EPISODE = EpisodeHandle(SHOP, ["goal", "catalogue_size"])

agent = Agent(
    tools=[
        _EPISODE.tool(
            "search",
            "Search the shop; from its first page.",
            argument="query",
            meaning="words of the product",
            action="search[{}]",
        ),
        _EPISODE.tool(
            "click",
            "Click something on the page.",
            argument="element",
            meaning="what to click, as it stands on the page",
            action="click[{}]",
        ),
    ],
    reward=_EPISODE.episode_return(name="purchase"),
    system=SYSTEM,
    max_turns=15,
    max_invalid_calls=3,
)


def oracle(task: Task) -> Sequence[Move]:
    """Moves that buy what a task of `make_tasks` asks for."""
    goal = task["goal"]
    product = catalogue(task["catalogue_size"]).products[goal["product"]]
    clicks = [product.id, *goal["options"].values(), "buy now"]
    return [Move("search", {"query": product.title}), *(Move("click", {"element": each}) for each in clicks)]

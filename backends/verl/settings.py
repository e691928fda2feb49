"""What a user may set in the entry of verl's agent loop file (or, for the plugin, under `data.agentfly`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentfly.errors import ConfigError


class LoopSettings(BaseModel):
    """Settings of the agent loop.

    Attributes:
        agent: `module:attribute` or `file.py:attribute` (relative to the agent loop file). None makes an agent of
            verl's own tools (`multi_turn.tool_config_path`, `function_tool_path`), rewarded by verl.
        family, chat_options: of the chat format; see `ModelSpec`.
        max_tokens: of one completion; verl's response length when None.
        timeout: seconds that a rollout may work, time in queues not counted; None is no limit.
        max_attempts: runs of one rollout before infrastructure faults end it.
        concurrency: rollouts at once in each of verl's agent loop workers; None is no limit.
        reward: `agent` takes the agent's own; `verl` leaves it to verl's reward workers.
        recorder: name of the actor that gets every trajectory; set by AgentFly's own jobs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    agent: str | None = None
    family: str | None = None
    chat_options: dict[str, Any] = Field(default_factory=dict)
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    timeout: Annotated[float, Field(gt=0)] | None = 300.0
    max_attempts: Annotated[int, Field(ge=1)] = 3
    concurrency: Annotated[int, Field(ge=1)] | None = None
    reward: Literal["agent", "verl"] = "agent"
    recorder: str | None = None

    @property
    def key(self) -> str:
        """The same for equal settings."""
        return self.model_dump_json()


def read_settings(given: Mapping[str, Any], where: str) -> LoopSettings:
    """Check settings.

    Args:
        given: plain data.
        where: how errors name their place.

    Raises:
        ConfigError: with a line for each that is wrong.
    """
    try:
        return LoopSettings.model_validate(dict(given))
    except ValidationError as error:
        lines = [
            f"{where}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}; "
            f"settings are: {', '.join(LoopSettings.model_fields)}"
            for problem in error.errors(include_url=False)
        ]
        raise ConfigError("\n".join(lines)) from None

"""What environments have in common: episodes that are opened from a task row, stepped, and scored."""

from agentfly.envs.episodes.environment import GameEnvironment
from agentfly.envs.episodes.game import Game, Step
from agentfly.envs.episodes.handle import EpisodeHandle
from agentfly.envs.episodes.oracle import Move, Script

__all__ = ["EpisodeHandle", "Game", "GameEnvironment", "Move", "Script", "Step"]

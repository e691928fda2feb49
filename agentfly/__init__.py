"""Reinforcement learning of LLM agents: everything around the model is a typed resource on Ray."""

from agentfly.agent import Agent, Reward, RewardResult, Tool, ToolResult, reward, tool, weighted
from agentfly.agent.harness import HarnessAgent
from agentfly.context import Context, FromTask, Task
from agentfly.envs.gym import gym_resource
from agentfly.errors import (
    AcquireTimeout,
    AgentFlyError,
    BudgetSpent,
    ConfigError,
    Deadlock,
    ModelError,
    PoolSaturated,
    RateLimited,
    ResourceDied,
    ResourceError,
    RewardError,
    StaleLease,
    StartFailed,
    ToolError,
)
from agentfly.models.engine import Sampling
from agentfly.models.spec import ModelSpec
from agentfly.resources import Resource, ResourceSpec
from agentfly.resources.api import ApiSpec, charge
from agentfly.resources.environment import Environment, EnvironmentSpec, Episode, Step
from agentfly.resources.sandbox import Sandbox, SandboxSpec
from agentfly.rollout.api import arollout, rollout
from agentfly.rollout.request import RolloutOptions
from agentfly.rollout.trajectory import Group, Trajectory
from agentfly.training.job import TrainingJob
from agentfly.training.run import atrain, train

__all__ = [
    "AcquireTimeout",
    "Agent",
    "AgentFlyError",
    "ApiSpec",
    "BudgetSpent",
    "ConfigError",
    "Context",
    "Deadlock",
    "Environment",
    "EnvironmentSpec",
    "Episode",
    "FromTask",
    "Group",
    "HarnessAgent",
    "ModelError",
    "ModelSpec",
    "PoolSaturated",
    "RateLimited",
    "Resource",
    "ResourceDied",
    "ResourceError",
    "ResourceSpec",
    "Reward",
    "RewardError",
    "RewardResult",
    "RolloutOptions",
    "Sampling",
    "Sandbox",
    "SandboxSpec",
    "StaleLease",
    "StartFailed",
    "Step",
    "Task",
    "Tool",
    "ToolError",
    "ToolResult",
    "TrainingJob",
    "Trajectory",
    "arollout",
    "atrain",
    "charge",
    "gym_resource",
    "reward",
    "rollout",
    "tool",
    "train",
    "weighted",
]

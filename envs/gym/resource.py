"""Any Gymnasium environment in a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentfly.envs.episodes import Game, GameEnvironment, Step
from agentfly.envs.gym.presets import PRESETS

from agentfly.agent import load_object
from agentfly.errors import ConfigError
from agentfly.resources.environment import EnvironmentSpec

if TYPE_CHECKING:
    from agentfly.envs.gym.observation_text import Describe


class GymEnvironment(GameEnvironment):
    """One `gymnasium.Env` for each slot, reset by the seed of the task.

    Args:
        env_id: as `gymnasium.make` takes it.
        kwargs: for `gymnasium.make`.
        imports: modules that register it.
        actions: names of the actions of a discrete space, in order.
        describe: `module:function` of environment and observation that puts it in words; the environment's own
            `ansi` rendering otherwise, else the observation.
        fresh: make the environment anew for every episode, for those whose `reset` leaves something behind.
    """

    def __init__(
        self,
        env_id: str,
        kwargs: Mapping[str, Any],
        imports: Sequence[str] = (),
        actions: Sequence[str] = (),
        describe: str | None = None,
        fresh: bool = False,
    ) -> None:
        super().__init__()
        self._id = env_id
        self._kwargs = kwargs
        self._imports = imports
        self._actions = actions
        self._describe = describe
        self._fresh = fresh
        self._env: Any = None

    async def start(self) -> None:
        """Make the environment.

        Raises:
            ConfigError: gymnasium or the environment isn't installed.
        """
        self._env = make_env(self._id, self._kwargs, self._imports)

    def open(self, row: Mapping[str, Any]) -> Game:
        if self._fresh or self._env is None:
            if self._env is not None:
                self._env.close()
            self._env = make_env(self._id, self._kwargs, self._imports)
        return GymGame(self._env, row, self._actions, _describer(self._describe))

    async def stop(self) -> None:
        """Close the environment."""
        await super().stop()
        self.close()

    def close(self) -> None:
        """Close the environment, for callers that aren't asynchronous."""
        env, self._env = self._env, None
        if env is not None:
            env.close()


class GymGame(Game):
    """One episode of a `gymnasium.Env`.

    Args:
        env: made, and reset here.
        row: `seed`, and `options` for the environment's `reset`.
        actions: names of the actions.
        describe: puts observations in words.
    """

    def __init__(self, env: Any, row: Mapping[str, Any], actions: Sequence[str], describe: Describe) -> None:
        self._env = env
        self._actions = actions
        self._describe = describe
        self._observation, _ = env.reset(seed=int(row["seed"]), options=row.get("options"))

    def observe(self) -> str:
        return self._describe(self._env, self._observation)

    def step(self, action: str) -> Step:
        from agentfly.envs.gym.action_text import NotAnAction, read_action

        try:
            element = read_action(action, self._env.action_space, self._actions)
        except NotAnAction as error:
            return Step(str(error), info={"invalid_actions": 1.0})
        self._observation, reward, terminated, truncated, _ = self._env.step(element)
        return Step(self.observe(), float(reward), bool(terminated), bool(truncated))


def gym_resource(
    env_id: str,
    *,
    imports: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
    describe: str | None = None,
    max_steps: int | None = None,
    fresh: bool = False,
    name: str = "",
    slots: int = 64,
    max_size: int = 4096,
    runtime_env: Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> EnvironmentSpec[GymEnvironment]:
    """A pool of any Gymnasium environment. It must be installed where the hosts run, not here.

    Args:
        env_id: as `gymnasium.make` takes it; for those in `PRESETS`, `imports`, `actions` and `describe` are known.
        imports, actions, describe, fresh: see `GymEnvironment`.
        max_steps: after which an episode is cut, beside the environment's own limit.
        name: of the pool.
        slots: environments that one host process carries.
        max_size: environments at most.
        runtime_env: of the hosts: packages that only they need.
        kwargs: for `gymnasium.make`.
    """
    preset = PRESETS.get(env_id)
    args = {
        "env_id": env_id,
        "kwargs": dict(kwargs or {}),
        "imports": tuple(imports if imports is not None else preset.imports if preset else ()),
        "actions": tuple(actions if actions is not None else preset.actions if preset else ()),
        "describe": describe if describe is not None else preset.describe if preset else None,
        "fresh": fresh,
    }
    return EnvironmentSpec(
        GymEnvironment,
        args=args,
        max_steps=max_steps,
        name=name or env_id.replace("/", "-"),
        slots=slots,
        max_size=max_size,
        runtime_env=dict(runtime_env or {}),
    )


def make_env(env_id: str, kwargs: Mapping[str, Any], imports: Sequence[str]) -> Any:
    """The environment, rendering text if it can.

    Raises:
        ConfigError: it, or gymnasium, isn't there.
    """
    try:
        import gymnasium

        for module in imports:
            import_module(module)
        spec = gymnasium.spec(env_id)
        creator = spec.entry_point
        made = gymnasium.envs.registration.load_env_creator(creator) if isinstance(creator, str) else creator
        modes = getattr(made, "metadata", {}).get("render_modes", ())
        options = {"render_mode": "ansi", **kwargs} if "ansi" in modes else dict(kwargs)
        return gymnasium.make(env_id, **options)
    except ImportError as error:
        raise ConfigError(f"environment {env_id!r} can't be made: {error}; pip install agentfly-rl[gym]") from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"environment {env_id!r} can't be made: {error}") from error


def _describer(reference: str | None) -> Describe:
    if reference is not None:
        found: Describe = load_object(reference)
        return found
    from agentfly.envs.gym.observation_text import describe

    return describe

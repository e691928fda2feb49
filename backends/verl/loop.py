"""The agent loop that verl runs: AgentFly's rollouts, tools, rewards and pools in verl's pipeline.

Named in the file that `actor_rollout_ref.rollout.agent.agent_loop_config_path` points to:

    - name: my_agent
      _target_: agentfly.backends.verl.loop.AgentFlyLoop
      agent: my_package.my_module:agent
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agentfly.backends.verl.agents import agent_of, check_agent
from agentfly.backends.verl.fields import EVALUATION_COLUMN, task_of
from agentfly.backends.verl.formats import chat_format
from agentfly.backends.verl.opener import VerlOpener
from agentfly.backends.verl.outputs import failed_output, outputs_of
from agentfly.backends.verl.rows import usable
from agentfly.backends.verl.sampling import is_validation, sampling_of
from agentfly.backends.verl.session import WorkerSession, sessions_of
from agentfly.backends.verl.settings import LoopSettings, read_settings
from agentfly.backends.verl.versions import check_versions
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from agentfly.errors import AgentFlyError
from agentfly.models.engine import Message
from agentfly.rollout.request import RolloutRequest
from agentfly.rollout.seeds import derive_seed
from agentfly.rollout.trajectory import Trajectory

# A group of one has nothing to compare with, yet verl would learn from its bare reward.
_COMPARES_NOTHING = ("gae", "reinforce_plus_plus", "remax")


class RolloutFailed(AgentFlyError):
    """verl counts the group of this rollout as failed: it leaves it out, or replaces it if told to."""


class AgentFlyLoop(AgentLoopBase):  # type: ignore[misc]  # verl has no types
    """One rollout. verl makes it, with the settings of the agent loop file; see `LoopSettings`."""

    def __init__(self, *args: Any, tools: Any = None, name: str = "agentfly", **given: Any) -> None:
        verls = {key: given.pop(key) for key in tuple(given) if key in _VERLS_ARGUMENTS}
        super().__init__(*args, **verls)
        self._settings = self._read(given, name)
        self._tools = tools.tools if tools is not None else []
        self._session = self._find_session()

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """Play the rollout of a dataset row.

        Returns:
            An `AgentLoopOutput`; under verl's V1 trainer a list of them, one for each segment, empty for a rollout
            that can't be learned from while others of its group can.

        Raises:
            RolloutFailed: nothing of the group can be learned from.
        """
        request = self._request(row)
        v1 = "session_id" in row
        groups = self._session.groups
        groups.enter(request.group_id)
        try:
            opener = self._opener(sampling_params, await self._media(row))
            trajectory = await self._play(request, opener, sampling_params)
            evaluation = bool(row.get(EVALUATION_COLUMN)) or is_validation(sampling_params, self.rollout_config)
            await self._session.record(int(row.get("global_steps", 0)), trajectory, evaluation=evaluation)
        except BaseException:
            groups.leave(request.group_id)
            raise
        good = usable(trajectory, rewarded=self._rewarded)
        members, survivors = await groups.settle(request.group_id, usable=good)
        if not v1:
            return self._only(trajectory, opener) if good else failed_output(trajectory, opener)
        lonely = survivors == 1 and members > 1 and not evaluation and self._compares
        if survivors == 0 or lonely:
            raise RolloutFailed(_why(trajectory, members, survivors))
        return outputs_of(trajectory, opener, rewarded=self._rewarded, stable=False) if good else []

    @property
    def _rewarded(self) -> bool:
        return self._session.agent.reward is not None

    @property
    def _compares(self) -> bool:
        return str(self.config.algorithm.adv_estimator) not in _COMPARES_NOTHING

    async def _play(
        self, request: RolloutRequest, opener: VerlOpener, sampling_params: Mapping[str, Any]
    ) -> Trajectory:
        most = self._settings.max_tokens or int(self.rollout_config.response_length)
        return await self._session.play(request, opener, sampling_of(sampling_params, most))

    def _only(self, trajectory: Trajectory, opener: VerlOpener) -> Any:
        outputs = outputs_of(trajectory, opener, rewarded=self._rewarded, stable=True)
        if len(outputs) > 1:
            raise AgentFlyError(
                f"rollout {trajectory.rollout_id} has {len(outputs)} segments, since its chat format could not extend "
                "an earlier turn: verl's V0 trainer takes one row a rollout; set trainer.use_v1=True"
            )
        return outputs[0]

    def _request(self, row: Mapping[str, Any]) -> RolloutRequest:
        task = task_of(row)
        age = self._session.next_age()
        group = f"{row.get('global_steps', 0)}-{row.get('uid', task.id)}"
        index = int(row.get("session_id", age))
        seed = derive_seed(int(self.rollout_config.get("seed", 0)), group.partition("-")[0], task.id, index)
        return RolloutRequest(group, index, task, seed, age=age)

    def _opener(self, params: Mapping[str, Any], media: dict[str, Any]) -> VerlOpener:
        session, rollout = self._session, self.rollout_config
        model_length = rollout.get("max_model_len")
        return VerlOpener(
            self.server_manager,
            session.format,
            session.schemas,
            params=params,
            media=media,
            render=partial(self._render_with_media, media) if media else None,
            prompt_length=int(rollout.prompt_length),
            response_length=int(rollout.response_length),
            model_length=int(model_length) if model_length else None,
        )

    async def _media(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Images, videos and sounds of the prompt, as verl's servers take them; empty for text."""
        found = await self.process_multi_modal_info(list(row.get("raw_prompt", ())))
        if not found:
            return {}
        kwargs = self._get_mm_processor_kwargs(found.get("audios"))
        return {
            "image_data": found.get("images"),
            "video_data": found.get("videos"),
            "audio_data": found.get("audios"),
            "mm_processor_kwargs": kwargs,
        }

    async def _render_with_media(self, media: dict[str, Any], messages: Sequence[Message]) -> list[int]:
        """The opening's tokens by verl's own builder, which knows the places of images."""
        self._assert_mm_supported(True)
        inputs: dict[str, Any] = {}
        ids: list[int] = await self.ct_build_initial_tokens(
            [dict(message) for message in messages],
            tools=list(self._session.schemas) or None,
            images=media["image_data"],
            videos=media["video_data"],
            audios=media["audio_data"],
            mm_inputs_out=inputs,
        )
        media["mm_processor_output"] = self.build_sglang_video_payload(media["video_data"], inputs)
        return ids

    def _read(self, given: Mapping[str, Any], name: str) -> LoopSettings:
        plain = OmegaConf.to_container(OmegaConf.create(dict(given)), resolve=True)
        return read_settings(plain, f"agent loop {name!r}")

    def _find_session(self) -> WorkerSession:
        sessions = sessions_of(self.server_manager)
        key = self._settings.key
        if key not in sessions:
            check_versions()
            sessions[key] = self._new_session()
        return sessions[key]

    def _new_session(self) -> WorkerSession:
        settings = self._settings
        place = self.rollout_config.agent.get("agent_loop_config_path")
        folder = Path(str(place)).resolve().parent if place else None
        agent = agent_of(settings, folder, self._tools, self.rollout_config.multi_turn)
        check_agent(agent, settings)
        if settings.reward == "verl":
            agent = replace(agent, reward=None)
        custom = self.config.actor_rollout_ref.model.get("custom_chat_template") is not None
        options = {**dict(self.apply_chat_template_kwargs or {}), **settings.chat_options}
        format = chat_format(self.tokenizer, family=settings.family, options=options, custom_template=custom)
        format.check()
        if agent.tools:
            format.check_tools()
        return WorkerSession(agent, format, settings)


class AgentFlyPluginLoop(AgentFlyLoop):
    """The loop that the entry point registers as `agentfly`: its settings stand under `data.agentfly`."""

    def _read(self, given: Mapping[str, Any], name: str) -> LoopSettings:
        found = self.data_config.get("agentfly") or {}
        return read_settings(OmegaConf.to_container(OmegaConf.create(found), resolve=True), "data.agentfly")


_VERLS_ARGUMENTS = (
    "trainer_config",
    "server_manager",
    "tokenizer",
    "processor",
    "dataset_cls",
    "data_config",
    "hf_model_type",
)


def _why(trajectory: Trajectory, members: int, survivors: int) -> str:
    own = trajectory.error or f"it ended by {trajectory.finish_reason}"
    return (
        f"rollout {trajectory.rollout_id} is left out: {survivors} of {members} in its group can be learned from; {own}"
    )

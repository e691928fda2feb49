"""Tools as verl's users write them; nothing in here knows of AgentFly."""

from __future__ import annotations

from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse


class Adder(BaseTool):
    """Adds, remembers what it was created with, and counts its instances."""

    def __init__(self, config: dict, tool_schema: OpenAIFunctionToolSchema) -> None:
        super().__init__(config, tool_schema)
        self.instances: dict[str, Any] = {}
        self.released = 0

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        instance, response = await super().create(instance_id, **kwargs)
        self.instances[instance] = kwargs.get("create_kwargs", {})
        return instance, response

    async def execute(self, instance_id: str, parameters: dict, **kwargs: Any) -> tuple[ToolResponse, float, dict]:
        if "a" not in parameters:
            raise KeyError("a")
        seen = kwargs["agent_data"].extra_fields.setdefault("seen", [])
        seen.append(parameters["a"])
        total = parameters["a"] + parameters.get("b", 0) + self.instances[instance_id].get("offset", 0)
        return ToolResponse(text=f"{total} after {seen}"), 0.5, {"total": total, "note": "no number"}

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        del self.instances[instance_id]
        self.released += 1


class Camera(BaseTool):
    async def execute(self, instance_id: str, parameters: dict, **kwargs: Any) -> tuple[ToolResponse, float, dict]:
        return ToolResponse(image=["pixels"]), 0.0, {}

"""Questions that are answered by searching a corpus."""

from agentfly.envs.search.agent import INDEX, agent, make_agent, search_index
from agentfly.envs.search.corpus import Passage, read_passages
from agentfly.envs.search.tasks import held_out_tasks, make_tasks, qa_task

__all__ = [
    "INDEX",
    "Passage",
    "agent",
    "held_out_tasks",
    "make_agent",
    "make_tasks",
    "qa_task",
    "read_passages",
    "search_index",
]

"""The one exception tree of AgentFly.

Every message says what failed, which object it was, and what to do about it.
"""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The first line of an error's text, else its type: what others raise goes into our one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class AgentFlyError(Exception):
    """Base of everything AgentFly raises on purpose."""


class ConfigError(AgentFlyError):
    """A job, an agent, a dataset or a specification is wrong; found before anything costly starts."""


class ToolError(AgentFlyError):
    """A tool call can't be carried out; its text is the observation that the model gets."""


class RewardError(AgentFlyError):
    """A reward function raised, timed out, or returned something that is no finite number."""


class ModelError(AgentFlyError):
    """A model engine failed; the rollout that met it starts over and is never trained on."""


class ResourceError(AgentFlyError):
    """Base of the faults that the resource engine itself states."""


class PoolSaturated(ResourceError):
    """The pool's wait queue is full.

    Attributes:
        waiting: requests in the queue when this one was refused.
        retry_after: estimated seconds until the queue has room; None when nothing is known yet.
    """

    def __init__(self, message: str, waiting: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.waiting = waiting
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[PoolSaturated], tuple[str, int, float | None]]:
        return type(self), (str(self), self.waiting, self.retry_after)


class AcquireTimeout(ResourceError):
    """No slot was granted within the time the caller allowed."""


class StartFailed(ResourceError):
    """A resource of this specification could not be started or set up."""


class ResourceDied(ResourceError):
    """The host of a leased resource died, or the resource was declared dead, in the middle of a lease."""


class Deadlock(ResourceError):
    """Rollouts wait for each other in a circle, and this one was chosen to give up what it holds and start over."""


class StaleLease(ResourceError):
    """A call came with a lease that has ended; the resource may belong to somebody else by now."""


class RateLimited(ResourceError):
    """An external API refuses a call for its rate. A client's method may raise it; so does a call that gives up.

    Attributes:
        retry_after: seconds that the API asks to wait; None when it doesn't say.
    """

    def __init__(self, message: str = "the API refuses calls for their rate", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[RateLimited], tuple[str, float | None]]:
        return type(self), (str(self), self.retry_after)


class BudgetSpent(ResourceError):
    """The money that a job may spend on an external API is used up."""

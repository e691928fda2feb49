"""Layer II: the agent loop, trajectories, and the rollout workers on Ray."""

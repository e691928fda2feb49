"""verl: AgentFly's rollouts in a verl pipeline, and verl as a training backend of AgentFly's jobs."""

"""The capture gateway: agents of others call the policy over HTTP, and their calls become a trajectory."""

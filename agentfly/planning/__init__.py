"""Simulates a job's pools on the real scheduling core: what holds it up, what sizes it needs, what that costs."""

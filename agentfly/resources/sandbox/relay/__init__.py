"""Sandboxes on other machines, reached by nothing but commands: our program inside, and the way to it."""

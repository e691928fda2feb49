"""A pool of engines as an OpenAI-compatible endpoint, on Ray Serve."""

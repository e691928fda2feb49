"""The `vllm` engine: vLLM's `AsyncLLM` in a pool's host."""

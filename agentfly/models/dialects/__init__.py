"""The wire formats in which agents speak to models: Chat Completions, Responses, Anthropic Messages. Pure."""

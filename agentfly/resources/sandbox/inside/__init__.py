"""The program that runs in a sandbox, under whatever Python is there: 3.8 or later, the standard library alone.

It is sent in as a bundle of these modules (see `agentfly.resources.sandbox.program`), and imports little: what it
imports, every start of a sandbox waits for.
"""

"""The embedded provider: bubblewrap's namespaces, a seccomp filter, resource limits."""

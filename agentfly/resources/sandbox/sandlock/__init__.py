"""The provider `sandlock`: Landlock and seccomp, where user namespaces are forbidden."""

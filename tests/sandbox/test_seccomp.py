"""The filter of system calls, run here as the kernel would run it."""

from __future__ import annotations

import platform
import struct
from functools import cache

import pyseccomp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentfly.resources.sandbox.bubblewrap import syscalls
from agentfly.resources.sandbox.bubblewrap.seccomp import filter_program

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


@cache
def instructions(counted: bool) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", filter_program(counted)))


def verdict(name: str | int, *args: int, counted: bool = True, architecture: int | None = None) -> int:
    """What the kernel is told to do about a call."""
    number = name if isinstance(name, int) else pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
    machine = ARCHITECTURES[platform.machine()] if architecture is None else architecture
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, machine, 0, *[*args, 0, 0, 0, 0, 0, 0][:6])
    program = instructions(counted)
    at, register, memory = 0, 0, [0] * 16
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x20:
            (register,) = struct.unpack_from("=I", data, value)
        elif code == 0x02:
            memory[value] = register
        elif code == 0x60:
            register = memory[value]
        elif code == 0x54:
            register &= value
        elif code == 0x05:
            at += value
        elif code in (0x15, 0x25, 0x35, 0x45):
            holds = {0x15: register == value, 0x25: register > value, 0x35: register >= value, 0x45: register & value}
            at += yes if holds[code] else no
        elif code == 0x06:
            return value
        else:
            raise AssertionError(f"an instruction that this test doesn't know: {code:#x}")


@pytest.mark.parametrize("name", ["read", "execve", "mmap", "futex", "openat", "fork", "statx", "rseq", "getrandom"])
def test_what_programs_need_is_allowed(name: str) -> None:
    if name == "fork" and platform.machine() != "x86_64":
        name = "clone"
    assert verdict(name) == ALLOW


@pytest.mark.parametrize(
    "name", ["mount", "ptrace", "bpf", "unshare", "setns", "keyctl", "userfaultfd", "shmget", "reboot"]
)
def test_what_nobody_may_do_is_not_permitted(name: str) -> None:
    assert verdict(name) == ERRNO | 1


@given(st.integers(600, (1 << 32) - 1))
def test_what_is_not_known_is_not_there(number: int) -> None:
    assert verdict(number) in (ERRNO | 38, KILL, 0)


@given(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_sockets_are_of_few_families_whatever_the_upper_half_says(family: int, upper: int) -> None:
    allowed = family in (syscalls.AF_UNIX, syscalls.AF_INET, syscalls.AF_INET6, syscalls.AF_NETLINK)
    assert (verdict("socket", upper << 32 | family, 1, 0) == ALLOW) == allowed


@given(st.integers(1, 40))
def test_of_netlink_only_routes_can_be_asked_for(protocol: int) -> None:
    assert verdict("socket", syscalls.AF_NETLINK, 3, protocol) == ERRNO | 38


@given(st.integers(0, (1 << 64) - 1))
def test_clone_makes_no_namespace(flags: int) -> None:
    assert (verdict("clone", flags) == ALLOW) == (flags & syscalls.NAMESPACES == 0)
    assert verdict("clone3", flags) == ERRNO | 38


def test_memory_of_nobody_is_there_only_when_it_is_counted() -> None:
    assert verdict("memfd_create", counted=True) == ALLOW
    assert verdict("memfd_create", counted=False) == ERRNO | 38


@given(st.integers(0, 500))
def test_calls_by_another_architecture_are_the_end(number: int) -> None:
    assert verdict(number, architecture=0x40000003) in (KILL, 0)  # i386
    if platform.machine() == "x86_64":
        assert verdict(number | 0x40000000) in (KILL, 0)  # x32

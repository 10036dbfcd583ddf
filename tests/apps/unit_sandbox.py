"""What a systemd unit takes away from its program, done to a process of ours without systemd: the system
calls that SystemCallFilter= leaves, the sockets of RestrictAddressFamilies=, MemoryDenyWriteExecute=,
NoNewPrivileges= and an empty CapabilityBoundingSet=. Not done: its view of the file system, its user, its
network rules. Needs systemd-analyze, for the sets of calls, and libseccomp, which comes with it."""

import ctypes
import errno
import re
import socket
import subprocess

PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24
PROT_WRITE, PROT_EXEC = 2, 4
ALLOW, DENY = 0x7FFF0000, 0x00050000 | errno.EPERM  # SCMP_ACT_ALLOW, SCMP_ACT_ERRNO(EPERM)
EQUAL, MASKED_EQUAL = 4, 7  # SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ


class Comparison(ctypes.Structure):  # struct scmp_arg_cmp
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("how", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    ]


def values_of(unit, name):
    return re.findall(rf"^{name}=(.*)$", unit, re.M)


def calls_of(name):
    """The system calls of a set such as @resources, or the one call."""
    if not name.startswith("@"):
        return {name}
    run = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, check=True)
    members = re.findall(r"^ +(@?\w[\w-]*)$", run.stdout.decode(), re.M)
    return set().union(*(calls_of(member) for member in members))


def allowed_calls(unit):
    """The lines of SystemCallFilter= in their order: the first one is a list of what is allowed."""
    allowed = set()
    for line in values_of(unit, "SystemCallFilter"):
        for name in line.removeprefix("~").split():
            allowed = allowed - calls_of(name) if line.startswith("~") else allowed | calls_of(name)
    return allowed


def sandbox(unit):
    """For preexec_fn of subprocess: confines the process as `unit` (its text) says."""
    allowed = allowed_calls(unit)
    families = [getattr(socket, name) for name in " ".join(values_of(unit, "RestrictAddressFamilies")).split()]
    seccomp = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    libc = ctypes.CDLL(None, use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p

    def allow(context, name, *comparisons):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number < 0:  # of another architecture
            return
        array = (Comparison * len(comparisons))(*comparisons)
        code = seccomp.seccomp_rule_add_array(
            ctypes.c_void_p(context), ctypes.c_uint32(ALLOW), number, len(comparisons), array
        )
        if code != 0:
            raise OSError(-code, f"seccomp: {name}")

    def confine():
        context = seccomp.seccomp_init(ctypes.c_uint32(DENY))
        for name in allowed - {"socket", "mmap", "mprotect"}:
            allow(context, name)
        for family in families:
            allow(context, "socket", Comparison(0, EQUAL, family, 0))
        # Memory is written or run, never both, and what was written is never made to run.
        for bit in (PROT_WRITE, PROT_EXEC):
            allow(context, "mmap", Comparison(2, MASKED_EQUAL, bit, 0))
        allow(context, "mprotect", Comparison(2, MASKED_EQUAL, PROT_EXEC, 0))
        for capability in range(64):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # only root has any to drop
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        code = seccomp.seccomp_load(ctypes.c_void_p(context))
        if code != 0:
            raise OSError(-code, "seccomp_load")

    return confine

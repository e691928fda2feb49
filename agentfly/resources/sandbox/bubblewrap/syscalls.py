"""System calls: what an ordinary program needs, and what is told off by name. All else doesn't exist inside."""

from __future__ import annotations

# The set that container engines allow to processes without capabilities, without what traces or watches others,
# System V's shared memory (which no limit of a process covers), asynchronous rings, keys, and syncing whole disks.
ALLOWED = """
    accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_getres
    clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
    epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve
    execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat
    fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex
    futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents
    getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority
    getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
    getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents
    io_pgetevents io_setup io_submit ioctl ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset
    landlock_restrict_self lchown lgetxattr link linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat
    madvise map_shadow_stack membarrier mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mremap
    mseal msync munlock munlockall munmap nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal
    pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 pselect6 pwrite64
    pwritev pwritev2 read readahead readlink readlinkat readv recv recvfrom recvmmsg recvmsg remap_file_pages
    removexattr rename renameat renameat2 restart_syscall riscv_hwprobe rmdir rseq rt_sigaction rt_sigpending
    rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
    sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select send sendfile
    sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups
    setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr
    shutdown sigaltstack signalfd signalfd4 socketpair splice stat statfs statx symlink symlinkat sync_file_range
    sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork
    vmsplice wait4 waitid waitpid write writev
""".split()

# Memory that belongs to no process: only where a cgroup counts it.
ALLOWED_IN_A_CGROUP = ["memfd_create"]

# These answer "not permitted": they are there, and not for you. What isn't named here answers "no such call".
FORBIDDEN = """
    acct add_key adjtimex bpf chroot clock_adjtime clock_settime delete_module finit_module fsconfig fsmount fsopen
    fspick init_module ioperm iopl kcmp kexec_file_load kexec_load keyctl mbind migrate_pages mount mount_setattr
    move_mount move_pages msgget name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open personality
    pidfd_getfd pivot_root process_madvise process_vm_readv process_vm_writev ptrace quotactl reboot request_key
    semget set_mempolicy setdomainname sethostname setns settimeofday shmat shmget swapoff swapon sync syncfs syslog
    umount umount2 unshare userfaultfd vhangup
""".split()

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE = 0
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
NAMESPACES = 0x7E020000

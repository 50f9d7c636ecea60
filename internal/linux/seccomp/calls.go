package seccomp

// allowedCalls need no look at their arguments: the kernel's own checks, the
// namespaces and the limits hold them.
var allowedCalls = []string{
	// Files and descriptors.
	"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2",
	"open", "openat", "openat2", "creat", "close", "close_range", "lseek", "dup", "dup2", "dup3",
	"stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs",
	"access", "faccessat", "faccessat2", "flock", "fsync", "fdatasync", "sync_file_range",
	"truncate", "ftruncate", "fallocate", "fadvise64", "readahead",
	"sendfile", "splice", "tee", "vmsplice", "copy_file_range", "pipe", "pipe2",
	"getdents", "getdents64", "getcwd", "chdir", "fchdir", "umask",
	"rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "link", "linkat",
	"unlink", "unlinkat", "symlink", "symlinkat", "readlink", "readlinkat",
	"chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat",
	"utime", "utimes", "utimensat", "futimesat",
	"getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr",
	// Waiting for descriptors.
	"poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl",
	"epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2", "signalfd", "signalfd4",
	"timerfd_create", "timerfd_settime", "timerfd_gettime",
	// Memory.
	"brk", "mmap", "mprotect", "munmap", "mremap", "madvise", "msync", "mincore",
	"mlock", "mlock2", "munlock", "mlockall", "munlockall", "memfd_create", "membarrier", "mseal",
	"pkey_alloc", "pkey_free", "pkey_mprotect",
	// Threads.
	"futex", "futex_waitv", "futex_wake", "futex_wait", "futex_requeue",
	"set_robust_list", "get_robust_list", "set_tid_address", "rseq", "arch_prctl", "map_shadow_stack",
	"exit", "exit_group", "restart_syscall", "getcpu",
	"sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_getscheduler", "sched_getparam",
	"sched_getattr", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval",
	// Identity, read only, and limits.
	"getpid", "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid",
	"getgroups", "getpgid", "getpgrp", "getsid", "setpgid", "setsid", "capget",
	"getrlimit", "setrlimit", "getrusage", "getpriority", "setpriority", "ioprio_get", "times", "uname", "sysinfo",
	// Signals. Who can be reached is decided by pid namespace and uid.
	"rt_sigaction", "rt_sigprocmask", "rt_sigpending", "rt_sigtimedwait", "rt_sigqueueinfo",
	"rt_tgsigqueueinfo", "rt_sigsuspend", "rt_sigreturn", "sigaltstack", "pause",
	"kill", "tkill", "tgkill", "pidfd_open", "pidfd_send_signal", "wait4", "waitid",
	// Time.
	"clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time",
	"alarm", "getitimer", "setitimer",
	"timer_create", "timer_settime", "timer_gettime", "timer_getoverrun", "timer_delete",
	"getrandom",
	// Connected sockets; how they are made is checked.
	"sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg", "shutdown",
	"getsockname", "getpeername", "getsockopt",
}

// processCalls are open only with Profile.AllowProcesses. execveat stays shut:
// subprocess uses execve, and with AT_EMPTY_PATH it runs files without a path.
var processCalls = []string{"fork", "vfork", "execve"}

// socketCalls are open only with Profile.AllowSockets.
var socketCalls = []string{"bind", "connect", "listen", "accept", "accept4"}

// deniedCalls are refused to a program but not to its supervisor.
var deniedCalls = []string{
	"execveat", "seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
	"setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid",
	"setgroups", "capset",
	"sched_setattr", "sched_setparam", "ioprio_set", "get_mempolicy",
	// Watching shared files is a channel between sandboxes.
	"inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
	// They flush the host's file systems, not only the caller's.
	"sync", "syncfs",
	// Attributes on tmpfs are not counted by its size limit.
	"setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
	"vhangup",
}

// hostCalls reach other processes, kernel subsystems or the host itself. Neither
// a program nor a supervisor has a use for them.
var hostCalls = []string{
	// Other processes.
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "pidfd_getfd",
	// Mounts, roots, namespaces.
	"mount", "umount2", "pivot_root", "chroot", "setns", "unshare",
	"open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
	"listmount", "statmount", "name_to_handle_at", "open_by_handle_at",
	// Kernel code and events.
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load",
	"fanotify_init", "fanotify_mark", "memfd_secret", "lookup_dcookie", "nfsservctl", "syslog",
	// Keyrings, System V IPC and POSIX queues outlive a run or cross uids.
	"add_key", "request_key", "keyctl",
	"shmget", "shmat", "shmctl", "shmdt", "msgget", "msgsnd", "msgrcv", "msgctl",
	"semget", "semop", "semtimedop", "semctl",
	"mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr",
	// The machine.
	"reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "sethostname", "setdomainname",
	"settimeofday", "clock_settime", "clock_adjtime", "adjtimex",
	"iopl", "ioperm", "modify_ldt",
	"mbind", "set_mempolicy", "set_mempolicy_home_node", "migrate_pages", "move_pages",
}

// conditionalCalls are decided by their arguments.
func conditionalCalls(p Profile) map[string]block {
	socket := deny()
	if p.AllowSockets {
		socket = checkSocket()
	}
	return map[string]block{
		"clone":              checkClone(p.AllowProcesses),
		"clone3":             absent(),
		"socket":             socket,
		"socketpair":         checkSocketpair(p.AllowSockets),
		"setsockopt":         checkSetsockopt(),
		"ioctl":              checkIoctl(),
		"fcntl":              checkFcntl(),
		"prctl":              checkPrctl(),
		"personality":        checkPersonality(),
		"mknod":              checkMknod(1),
		"mknodat":            checkMknod(2),
		"sched_setscheduler": checkScheduler(),
		"prlimit64":          checkPrlimit(),
	}
}

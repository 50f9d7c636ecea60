# want: passed
# Calls that open the kernel up, each by its number.
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
calls = {
    "ptrace": (101, 117), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "unshare": (272, 97), "mount": (165, 40),
    "process_vm_readv": (310, 270), "syslog": (103, 116), "open_by_handle_at": (304, 265),
    "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "fsopen": (430, 430), "open_tree": (428, 428), "io_uring_setup": (425, 425),
    "fanotify_init": (300, 262), "inotify_init1": (294, 26), "clone3": (435, 435), "memfd_secret": (447, 447),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "move_mount": (429, 429), "mount_setattr": (442, 442), "quotactl": (179, 60), "acct": (163, 89),
    "swapon": (167, 224), "reboot": (169, 142), "kexec_load": (246, 104), "init_module": (175, 105),
    "setuid": (105, 146), "setresuid": (117, 147), "setgroups": (116, 159), "capset": (126, 91),
    "seccomp": (317, 277), "execveat": (322, 281), "vhangup": (153, 58),
}
for name, numbers in calls.items():
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(numbers[0 if x86 else 1]), *[ctypes.c_long(0)] * 6)
    error = ctypes.get_errno()
    # 1 EPERM, 38 ENOSYS: the filter's answers. Any other came from the kernel's
    # own code behind it.
    if result != -1 or error not in (1, 38):
        print("LEAK: %s gave %d, errno %d" % (name, result, error))
print("tried", len(calls))

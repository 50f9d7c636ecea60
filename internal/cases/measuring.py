"""What a daemon has in use: compared before and after a case to see what a run
left behind."""
import os
import re
import time

CGROUPS = "/sys/fs/cgroup"

# Host ids that sandboxes run under start here. Nobody else's processes and files
# have such owners.
SANDBOX_UIDS = range(1_000_000, 2_000_000)

SETTLE_SECONDS = 3
QUIET_SECONDS = 0.05  # without a change, for a daemon to count as at rest


class Snapshot:
    """Counts at one moment. Only growth means anything: an engine may keep
    processes, groups and descriptors of its own between runs."""

    FIELDS = ("leftover_procs", "daemon_fd_growth", "mount_growth", "cgroup_growth", "tmp_growth")

    def __init__(self, daemon):
        pid = daemon.pid
        self.leftover_procs = len(processes(pid))
        self.daemon_fd_growth = _entries("/proc/%d/fd" % pid)
        self.mount_growth = _lines("/proc/%d/mountinfo" % pid) + _lines("/proc/self/mountinfo")
        daemon.cgroup_parents |= cgroup_parents(pid)
        self.cgroup_growth = cgroups(daemon.cgroup_parents)
        self.tmp_growth = _files(daemon.directory) + _foreign("/tmp") + _foreign("/dev/shm") + _foreign("/var/tmp")

    def growth(self, before):
        return {name: getattr(self, name) - getattr(before, name) for name in self.FIELDS}


def settled(daemon):
    """A snapshot of a daemon at rest: one that is about to make a sandbox ready
    again in place of the last has too few of everything."""
    deadline = time.monotonic() + SETTLE_SECONDS * daemon.scale
    last = Snapshot(daemon)
    while True:
        time.sleep(QUIET_SECONDS * daemon.scale)
        now = Snapshot(daemon)
        if not any(now.growth(last).values()) or time.monotonic() > deadline:
            return now
        last = now


def settled_growth(daemon, before):
    """Growth since before, after what a finished run still has in the air has had
    time to come down."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        growth = Snapshot(daemon).growth(before)
        if not any(n > 0 for n in growth.values()) or time.monotonic() > deadline:
            return growth
        time.sleep(0.02)


def processes(pid):
    """The ids of a daemon's descendants, and of orphans that have the id of a
    sandbox."""
    parents, foreign = {}, set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as stat:
                # The command's name is in parentheses and may hold anything.
                parents[int(name)] = int(stat.read().rsplit(b")", 1)[1].split()[1])
            if os.stat("/proc/" + name).st_uid in SANDBOX_UIDS:
                foreign.add(int(name))
        except (OSError, IndexError):
            continue  # it has just ended
    found = {p for p in foreign if parents.get(p) == 1}  # orphans
    for process in parents:
        step = process
        while step in parents and step != pid:
            step = parents[step]
        if step == pid and process != pid:
            found.add(process)
    return found


def cgroup_parents(pid):
    """The cgroups below which a daemon makes its own, by where its descendants
    are: other daemons of this machine have others."""
    found = set()
    for process in processes(pid):
        try:
            with open("/proc/%d/cgroup" % process, encoding="utf-8") as file:
                names = [line.rstrip("\n").split(":", 2)[2].split("/")[1] for line in file]
        except (OSError, IndexError):
            continue
        found.update(name for name in names if name.startswith("sandboxd"))
    return found


def cgroups(parents):
    """How many directories of cgroups there are below parents."""
    count = 0
    for directory, names, _ in os.walk(CGROUPS):
        count += sum(1 for name in names if not parents.isdisjoint((directory + "/" + name).split("/")))
    return count


def rss_kib(pid):
    return _status(pid, "VmRSS")


def reset_peak(pid):
    """Makes VmHWM start again from now (proc(5), clear_refs)."""
    with open("/proc/%d/clear_refs" % pid, "w", encoding="ascii") as file:
        file.write("5")


def peak_kib(pid):
    return _status(pid, "VmHWM")


def _status(pid, name):
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as status:
        match = re.search(r"^%s:\s+(\d+)" % name, status.read(), re.MULTILINE)
    return int(match.group(1)) if match else 0


def _entries(path):
    try:
        return len(os.listdir(path))
    except OSError:
        return 0


def _lines(path):
    try:
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def _files(directory):
    return sum(len(dirs) + len(files) for _, dirs, files in os.walk(directory))


def _foreign(directory):
    """Entries of a shared directory that belong to a sandbox's id."""
    count = 0
    try:
        for entry in os.scandir(directory):
            try:
                count += entry.stat(follow_symlinks=False).st_uid in SANDBOX_UIDS
            except OSError:
                pass  # gone again
    except OSError:
        pass
    return count

"""Files of the workspace back to the daemon, after the program and all its
children are dead.

The tree is the program's making. Every step down is by descriptor and without
following links, so that no name in it can lead elsewhere; only regular files
are read, and only as many and as much as the limits allow."""

import fnmatch
import os
import stat

from sandboxd_guest import frames

_MAX_DEPTH = 32
_MAX_PATH = 4096  # bytes; the daemon takes no longer one
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: opening a pipe somebody left would otherwise wait for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _matcher(patterns):
    """Tells whether a path matches one of the patterns: fnmatch per segment,
    with ** for any number of directories."""
    split = [pattern.split("/") for pattern in patterns]
    return lambda path: any(_match(path.split("/"), pattern) for pattern in split)


def _match(names, pattern):
    # The positions in pattern that the names so far can have led to: linear,
    # whatever the number of ** in it.
    at = _past_stars({0}, pattern)
    for name in names:
        stay = {i for i in at if i < len(pattern) and pattern[i] == "**"}
        step = {i + 1 for i in at - stay if i < len(pattern) and fnmatch.fnmatchcase(name, pattern[i])}
        at = _past_stars(stay | step, pattern)
        if len(pattern) - 1 in stay:
            at.add(len(pattern))
    return len(pattern) in at


def _past_stars(positions, pattern):
    """Adds what ** for no directory at all leads to. A last ** stands for at
    least a name, so that a/** means the files below a."""
    for i in sorted(positions):
        while i < len(pattern) and pattern[i] == "**":
            if i == len(pattern) - 1:
                break
            i += 1
            positions.add(i)
    return positions


def _walk(directory, prefix, depth, budget):
    """Yields (path, descriptor of the directory, name) of regular files in
    name order."""
    try:
        with os.scandir(directory) as entries:
            names = sorted((e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False))
                           for e in entries)
    except OSError:
        return
    for name, is_dir, is_file in names:
        budget[0] -= 1
        if budget[0] < 0:
            return
        if is_file:
            yield prefix + name, directory, name
        elif is_dir and depth < _MAX_DEPTH:
            try:
                below = os.open(name, _DIRECTORY, dir_fd=directory)
            except OSError:
                continue
            try:
                yield from _walk(below, prefix + name + "/", depth + 1, budget)
            finally:
                os.close(below)


def send(stream, workspace, patterns, limits):
    """Sends matching files as artifact frames; True when some were left out."""
    matches = _matcher(patterns)
    bytes_left, count_left = limits["artifact_bytes"], limits["artifact_count"]
    cut = False
    root = os.open(workspace, _DIRECTORY)
    budget = [max(limits["workspace_inodes"], 1) * 2]
    for path, directory, name in _walk(root, "", 0, budget):
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        if not matches(shown):
            continue
        if len(shown.encode("utf-8")) > _MAX_PATH:
            cut = True
            continue
        size = _send_file(stream, shown, directory, name, bytes_left if count_left else -1)
        if size is None:
            cut = True
            continue
        bytes_left -= size
        count_left -= 1
    os.close(root)
    return cut or budget[0] < 0


def _send_file(stream, shown, directory, name, room):
    """Sends one file; its size, or None when it does not fit or cannot be
    read."""
    try:
        fd = os.open(name, _FILE, dir_fd=directory)
    except OSError:
        return None
    with open(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > room:
            return None
        data = file.read(info.st_size)
    for at in range(0, len(data) or 1, frames.CHUNK):
        part = data[at:at + frames.CHUNK]
        frames.write(stream, "artifact", path=shown, data=frames.encode(part),
                     more=at + frames.CHUNK < len(data))
    return len(data)

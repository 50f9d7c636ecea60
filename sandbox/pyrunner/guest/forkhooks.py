"""What modules want done after a fork, held back.

A module asks with os.register_at_fork, and the interpreter then runs Python
code in both processes at each fork. For threading, logging and their like that
code makes locks anew which nobody holds, since a zygote has one thread; it costs
a fork about as much as the fork itself. So the zygote takes the requests down,
and its children do what is left to do."""

import os
import sys

# Their hooks only renew locks and thread tables, or give dice new seeds, which
# interpreter.py does for each run.
_NEEDLESS = ("threading", "random", "logging", "concurrent.futures.thread")

_real = os.register_at_fork
_held = []


def _hold(*, before=None, after_in_child=None, after_in_parent=None):
    if not any(map(callable, (before, after_in_child, after_in_parent))):
        raise TypeError("At least one argument is required.")
    _held.append({"before": before, "after_in_child": after_in_child, "after_in_parent": after_in_parent})


def hold():
    """From now on requests are taken down."""
    os.register_at_fork = sys.modules["posix"].register_at_fork = _hold


def release():
    """From now on requests are granted again. Returns the functions that every
    child has to call."""
    os.register_at_fork = sys.modules["posix"].register_at_fork = _real
    wanted = [hooks["after_in_child"] for hooks in _held if hooks["after_in_child"]]
    return [hook for hook in wanted if getattr(hook, "__module__", None) not in _NEEDLESS
            and type(getattr(hook, "__self__", None)).__module__ not in _NEEDLESS]


def restore():
    """Grants what was taken down, for a child that may fork itself."""
    while _held:
        hooks = _held.pop(0)
        _real(**{name: hook for name, hook in hooks.items() if hook})

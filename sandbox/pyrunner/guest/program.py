"""Entry of the program's process: runs untrusted code and never returns.

The frames of run and _drive lie under all user code, which can walk down to
them and read their locals and globals. So they hold nothing that leads to the
harness: the session is a suspended generator, held by a for loop and by no
name, and this module forgets the others before the first user code.
"""

import sys
from _signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask, valid_signals
from importlib import import_module
from os import _exit
from sys import getprofile, gettrace, setprofile, settrace

from sandboxd_guest.channel import EXIT_CHANNEL_BROKEN, Channel

_SIGNALS = frozenset(valid_signals())
# Of a plan: what is made ahead is made without.
_OPTIONS = frozenset(("failures_max", "message_bytes", "repr_bytes"))


def run(plan, channel):
    """Runs plan and ends the process.

    Preconditions: descriptors 0 to 2 are the run's own, confinement holds, the
    working directory is the workspace. plan and channel are emptied: callers'
    frames may name them."""
    outcomes, end_process, code = [], _exit, EXIT_CHANNEL_BROKEN
    outcomes.append(_begin(dict(plan), channel, outcomes, globals().pop("_harness")))
    plan.clear()
    try:
        _drive(outcomes, exec, BaseException, gettrace, settrace, getprofile, setprofile,
               pthread_sigmask, SIG_BLOCK, SIG_SETMASK, _SIGNALS)
    finally:
        end_process(code)


def _begin(plan, channel, outcomes, harness):
    mode = harness["scriptrun" if plan["mode"] == "script" else "testrun"]
    send, receive_tests = channel.detach()
    ready = harness["ready"][mode]
    if not _OPTIONS.isdisjoint(plan):
        ready = mode.made_ahead(*harness["parts"], plan)
    return mode.session(ready, plan, send, receive_tests, outcomes, harness)


def _drive(outcomes, execute, anything, gettrace, settrace, getprofile, setprofile, mask, block, restore, signals):
    """interrupted: whether the code may be met by signals. The session's own
    work never is: a handler would see its frames, and raise in it."""
    trace = profile = None
    before = mask(block, signals)
    for code, space, interrupted in outcomes.pop():
        # All of it inside a try: a signal handler of the program can raise
        # anywhere, and is to be reported as any other exception.
        try:
            try:
                if trace is not None:
                    settrace(trace)
                if profile is not None:
                    setprofile(profile)
                if interrupted:
                    mask(restore, before)
                execute(code, space)
                outcomes.append(None)
            except anything as error:
                outcomes.append(error)
            if interrupted:
                before = mask(block, signals)
            # The program's tracers must not be called for the session's frames.
            trace, profile = gettrace(), getprofile()
            if trace is not None:
                settrace(None)
            if profile is not None:
                setprofile(None)
        except anything as error:
            outcomes.append(error)
            mask(block, signals)


def _conceal():
    """Imports the harness and takes it out of sys.modules and the package, now
    and not in each run: in a forked child, every object touched is a page
    copied. What stays is one name here, which run takes away.

    The modules that show user values run user code above their frames, which
    can change all they lead to. So these are a set of their own, `exposed`,
    that the harness calls through the driver only; it has its own for itself."""
    exposed = _take(("pristine", "reprs", "sourcetext", "tracebacks"))
    harness = _take((
        "asserts", "interpreter", "pristine", "reporting", "reprs", "scriptrun",
        "sourcetext", "testrun", "textmodule", "tracebacks"))
    own = [globals(), Channel.send.__globals__]
    own.extend(vars(module) for modules in (harness, exposed) for module in modules.values())
    harness["parts"] = own, exposed
    modes = harness["scriptrun"], harness["testrun"]
    harness["ready"] = {mode: mode.made_ahead(own, exposed, {}) for mode in modes}
    return harness


def _take(names):
    package = sys.modules["sandboxd_guest"]
    modules = {name: import_module("sandboxd_guest." + name) for name in names}
    for name, module in modules.items():
        del sys.modules[module.__name__]
        delattr(package, name)
    return modules


_harness = _conceal()

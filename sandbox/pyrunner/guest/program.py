"""Entry of the program's process: runs untrusted code and never returns.

The frames of run and _drive lie under all user code, which can walk down to
them and read their locals and globals. So they hold nothing that leads to the
harness: the session is a suspended generator, held by a for loop and by no
name, and this module forgets the others before the first user code.
"""

import sys
from os import _exit

from sandboxd_guest import asserts, interpreter, reporting, reprs, scriptrun, testrun, tracebacks
from sandboxd_guest.channel import EXIT_CHANNEL_BROKEN, Channel

_MODULES = (asserts, interpreter, reporting, reprs, scriptrun, testrun, tracebacks)


def run(plan, channel):
    """Runs plan and ends the process.

    Preconditions: descriptors 0 to 2 are the run's own, confinement holds, the
    working directory is the workspace. plan and channel are emptied: callers'
    frames may name them."""
    outcomes = []
    outcomes.append(_begin(dict(plan), channel, outcomes))
    plan.clear()
    _forget_harness()
    try:
        _drive(outcomes, exec, sys.gettrace, sys.settrace, sys.getprofile, sys.setprofile)
    finally:
        _exit(EXIT_CHANNEL_BROKEN)


def _begin(plan, channel, outcomes):
    mode = scriptrun if plan["mode"] == "script" else testrun
    send, receive_tests = channel.detach()
    own = [globals()] + [vars(module) for module in _MODULES]
    return mode.session(plan, send, receive_tests, outcomes, own)


def _forget_harness():
    """Takes away every path to the harness but the suspended generator."""
    package = sys.modules.get("sandboxd_guest")
    for name in [name for name in sys.modules if name.partition(".")[0] == "sandboxd_guest"]:
        del sys.modules[name]
    if package is not None:
        vars(package).clear()
    for module in globals().pop("_MODULES"):
        del globals()[module.__name__.rpartition(".")[2]]


def _drive(outcomes, execute, gettrace, settrace, getprofile, setprofile):
    trace = profile = None
    for code, space in outcomes.pop():
        # The program's tracers must not be called for the session's frames.
        if trace is not None:
            settrace(trace)
        if profile is not None:
            setprofile(profile)
        try:
            execute(code, space)
        except BaseException as error:
            outcomes.append(error)
        else:
            outcomes.append(None)
        trace, profile = gettrace(), getprofile()
        if trace is not None:
            settrace(None)
        if profile is not None:
            setprofile(None)

"""A sandbox with nobody in it but the program.

The first process has nothing to do here: it sleeps (kernel.PART), and its end
is the end of the sandbox. The daemon holds the program's pipes itself, and
learns from the kernel how the program ended. A supervisor would cost a copy of
this process's memory; a run that may start processes or whose files are
collected has one all the same (supervisor.py)."""

from os import _exit, close, write

from sandboxd_guest import confine, frames, kernel
from sandboxd_guest.confine import STATUS_FD

_STARTED = frames.frame("started")
# The daemon takes the sender's process id from the kernel.
_HELLO = frames.frame("hello", hello=confine.hello())


def calls(confinement, code):
    """What the sandbox's first process does last: it parts, and the new process
    becomes the program's. Descriptors stand where confine has them; the status
    descriptor is a socket to the daemon."""
    return [
        *kernel.steps("part", [kernel.part_call(code)], kernel.PART),
        *confinement.alone(),
        *kernel.steps("hello", [kernel.call("write", STATUS_FD, _HELLO, len(_HELLO))])]


def serve(confinement):
    """In the program's process: never returns."""
    try:
        run = confine.await_run(confinement.config)
        write(STATUS_FD, _STARTED)
    except kernel.StepError as error:
        frames.write(STATUS_FD, "error", error=error.fields)
        _exit(70)
    except (frames.Closed, OSError):
        _exit(0)  # never used
    close(STATUS_FD)
    run()

"""A sandbox with nobody in it but the program.

The first process has nothing to do here: it sleeps (kernel.Parter), and its end
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


def serve(confinement, part):
    """Never returns. Descriptors stand where confine has them; the status
    descriptor is a socket to the daemon."""
    try:
        try:
            part()
        except OSError as error:
            raise kernel.StepError("part", 0, error.errno or 0, str(error)) from None
        confinement.become(supervised=False)
        confinement.close_doors()
        write(STATUS_FD, _HELLO)
        run = confine.await_run(confinement.config)
        write(STATUS_FD, _STARTED)
    except kernel.StepError as error:
        frames.write(STATUS_FD, "error", error=error.fields)
        _exit(70)
    except (frames.Closed, OSError):
        _exit(0)  # never used
    close(STATUS_FD)
    run()

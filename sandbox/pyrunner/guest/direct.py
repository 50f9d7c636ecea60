"""A sandbox with nobody in it but the program.

The first process has nothing to do here: it sleeps (kernel.part), and its end
is the end of the sandbox. The daemon holds the program's pipes itself, and
learns from the kernel how the program ended. A supervisor would cost a copy of
this process's memory; a run that may start processes or whose files are
collected has one all the same (supervisor.py)."""

import os

from sandboxd_guest import confine, frames, kernel


def serve(config, park):
    """Never returns. Descriptors stand where confine has them; the status
    descriptor is a socket to the daemon."""
    try:
        with kernel.step("part"):
            kernel.part(park)
        confine.become(config)
        confine.close_doors(config)
        # The daemon takes the sender's process id from the kernel.
        frames.write(confine.STATUS_FD, "hello", hello=confine.hello())
        run = confine.await_run(config)
        frames.write(confine.STATUS_FD, "started")
    except kernel.StepError as error:
        frames.write(confine.STATUS_FD, "error", error=error.fields)
        os._exit(70)
    except (frames.Closed, OSError):
        os._exit(0)  # never used
    os.close(confine.STATUS_FD)
    run()

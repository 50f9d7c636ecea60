# Starts the guest inside a fresh interpreter: python3 -I -S -c TEXT BOOT STREAM.
# It reads the boot frame from descriptor BOOT, makes the guest's modules out of
# the text in it, and calls the entry module with descriptor STREAM. Nothing is read from disk, so any
# image with a whole standard library will do.
import importlib
import importlib.machinery
import json
import os
import sys


def _exactly(fd, count):
    parts = []
    while count:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            os._exit(70)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class _Sources:
    """Imports the guest's package from text."""

    def __init__(self, sources):
        self.sources = sources

    def find_spec(self, name, path=None, target=None):
        if name not in self.sources:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=not self.sources[name])

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        code = compile(self.sources[name], name.replace(".", "/") + ".py", "exec", dont_inherit=True)
        exec(code, module.__dict__)


def _boot(fd, stream):
    size = int.from_bytes(_exactly(fd, 4), "big")
    boot = json.loads(_exactly(fd, size))["boot"]
    if fd != stream:
        os.close(fd)
    sources = {"sandboxd_guest." + part["name"]: part["source"] for part in boot["modules"]}
    sources["sandboxd_guest"] = ""
    finder = _Sources(sources)
    sys.meta_path.insert(0, finder)
    entry = importlib.import_module("sandboxd_guest." + boot["entry"])
    sys.meta_path.remove(finder)
    config = boot["config"]
    # main does not return, and what is held here would be copied with each fork.
    sources.clear()
    boot.clear()
    entry.main(stream, config)


_boot(int(sys.argv[1]), int(sys.argv[2]))

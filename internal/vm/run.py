#!/usr/bin/python3
"""Boots Debian's cloud kernel in qemu and runs the privileged tests there.

Users' machines have cgroup v2 alone; a build machine may not. The VM is made of
the newest linux-image-*-cloud-amd64 that apt lists, a Debian tree with python3,
and what the work tree builds; internal/vm/init is its process 1.

    run.py full|reduced [--kernel PREFIX] [--cases FILE] [--trees TREE,...]

The last line counts; the exit status is 1 when something failed.
"""
import argparse
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zlib

REPO = pathlib.Path(__file__).resolve().parents[2]
WORK = REPO / "build" / "vm"

# Time limits of the whole machine in seconds.
OVERALL = {"reduced": 275, "full": 2400}

# Software emulation runs Python about fourteen times slower than the host.
TIME_SCALE = "14"

# Tests that the reduced form picks: the conformance suite alone takes a minute.
REDUCED_TESTS = {
    "isolation/native": "^TestEngine_(Conforms|LeavesNothing|NeverRunsWeaker)$",
}

# What the Debian tree is made of. crun is the runtime that is tried under cgroup
# v2; runc differs little from it there, and gVisor would take an hour in emulation.
PACKAGES = "python3,base-files,dash,coreutils,libc-bin,mount,crun"
MISSING = "binary:mmdebstrap,binary:runc,binary:runsc,binary:dockerd"  # nor is there a network to install from

# What the escape cases knock at, and what engines may mount; the rest of the
# kernel's modules stays out of the VM.
MODULES = ["fs/overlayfs/overlay.ko", "net/vmw_vsock/vsock.ko", "crypto/af_alg.ko"]

# Whose tests run. What the reduced form leaves out depends least on the cgroup
# version, and takes longest in emulation.
TREES = {
    "reduced": ["internal/linux", "isolation/native"],
    "full": ["internal/linux", "images", "isolation"],
}


def sh(*argv, **options):
    return subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, **options)


def output(*argv, **options):
    return sh(*argv, stdout=subprocess.PIPE, text=True, **options).stdout


# The cached parts: kernel and Debian tree.

def newest_kernel(prefix):
    listed = output("apt-cache", "search", "--names-only", "^linux-image-[0-9].*-cloud-amd64$")
    names = [line.split()[0] for line in listed.splitlines()]
    # A name without a patch level is a meta-package.
    names = [n for n in names if re.match(r"linux-image-\d+\.\d+\.\d+", n) and n.startswith("linux-image-" + prefix)]
    if not names:
        sys.exit("apt lists no linux-image-*-cloud-amd64: run apt-get update")
    return max(names, key=lambda n: [int(x) for x in re.findall(r"\d+", n)])


def kernel(prefix):
    """The kernel image and its unpacked modules, downloaded once."""
    name = newest_kernel(prefix)
    tree = WORK / "kernel" / name
    if not (tree / "boot").is_dir():
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        print("vm: downloading", name, flush=True)
        sh("apt-get", "download", "-q", name, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sh("dpkg-deb", "-x", *map(str, tree.glob("*.deb")), str(tree))
    image = next((tree / "boot").glob("vmlinuz-*"))
    return image, next((tree / "lib" / "modules").iterdir()) / "kernel"


def debian():
    """An archive of a Debian tree with python3, made once."""
    archive = WORK / ("debian-%08x.cpio" % zlib.crc32(PACKAGES.encode()))
    if archive.exists():
        return archive
    print("vm: making a Debian tree with python3", flush=True)
    tree = WORK / "debian"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    sources = pathlib.Path("/etc/apt/sources.list.d/debian.sources")
    sh("mmdebstrap", "--quiet", "--mode=" + ("root" if os.geteuid() == 0 else "unshare"), "--variant=extract",
       "--include=" + PACKAGES, codename(), str(WORK / "debian.tar"),
       *([str(sources)] if sources.exists() else []))
    sh("tar", "-C", str(tree), "--no-same-owner", "--exclude=./dev/*", "-xf", str(WORK / "debian.tar"))
    for path, text in ETC.items():
        (tree / path).write_text(text)
    precompile(tree)
    pack(tree, archive)
    (WORK / "debian.tar").unlink()
    shutil.rmtree(tree)
    return archive


ETC = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/hostname": "sandboxd-vm\n",
}


def codename():
    text = pathlib.Path("/etc/os-release").read_text()
    return re.search(r"VERSION_CODENAME=(\w+)", text).group(1)


def precompile(tree):
    """Writes byte code, which package installation would have done. Each start
    of Python in the VM would otherwise compile what it imports, slowly."""
    library = next((tree / "usr/lib").glob("python3.*"))
    sh("/usr/bin/python3", "-m", "compileall", "-q", "-s", str(tree), "-x", "lib2to3/tests|/test/", str(library))


def pack(tree, archive):
    files = subprocess.Popen(["find", ".", "-print0"], cwd=tree, stdout=subprocess.PIPE)
    with open(archive, "wb") as out:
        sh_pipe = subprocess.run(["cpio", "--null", "--quiet", "-o", "-H", "newc", "-R", "0:0"],
                                 cwd=tree, stdin=files.stdout, stdout=out, check=True)
    if files.wait() or sh_pipe.returncode:
        sys.exit("vm: packing %s failed" % tree)


# The part made anew each time: test binaries, daemon, plan.

def test_binaries(root, trees):
    """Compiles the root lane's packages; each binary goes beside its package's
    files, where its tests look for their testdata."""
    environment = dict(os.environ, CGO_ENABLED="0")
    packages = output("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}",
                      *["./%s/..." % t for t in trees], cwd=REPO, env=environment).split()
    found = []
    for directory in packages:
        relative = pathlib.Path(directory).relative_to(REPO)
        binary = root / "src" / relative / "lane.test"
        sh("go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", str(binary), "./%s" % relative, cwd=REPO, env=environment)
        found.append(relative)
    return found


def payload(root, how, modules, case_file, trees):
    """Lays out what the VM runs and returns the plan for it."""
    ignore = shutil.ignore_patterns("__pycache__", "*.go")
    for tree in ["internal", "images", "isolation", "sandbox"]:
        if (REPO / tree).is_dir():
            shutil.copytree(REPO / tree, root / "src" / tree, ignore=ignore)
    (root / "vm" / "bin").mkdir(parents=True)
    (root / "vm" / "modules").mkdir()
    environment = dict(os.environ, CGO_ENABLED="0")
    sh("go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(root / "init"), "./internal/vm/init", cwd=REPO, env=environment)
    sh("go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(root / "vm/bin") + "/", "./cmd/sandboxd", "./cmd/sandboxctl",
       cwd=REPO, env=environment)
    commands = [go_test(p, how) for p in test_binaries(root, trees)] + case_runs(root, how, case_file)
    return {"modules": [copy_module(root, modules, m) for m in MODULES], "commands": commands}


def go_test(package, how):
    argv = ["./lane.test", "-test.v", "-test.timeout=%ds" % (200 if how == "reduced" else 600)]
    if how == "reduced":
        argv.append("-test.short")
        argv += ["-test.run=" + REDUCED_TESTS[str(package)]] if str(package) in REDUCED_TESTS else []
    return {"name": str(package), "dir": "/src/" + str(package), "argv": argv,
            "env": ["SANDBOXD_LANE=vm", "SANDBOXD_SLOW=" + TIME_SCALE, "SANDBOXD_MISSING=" + MISSING],
            "seconds": 210 if how == "reduced" else 660}


def case_runs(root, how, case_file):
    runs = [("own cases", "/src/internal/cases/testdata/own.jsonl", ["--level", "must"])]
    if how == "reduced":
        runs[0][2].extend(["--tag", "quick"])
    if case_file:
        shutil.copy(case_file, root / "vm" / "cases.jsonl")
        runs.append(("given cases", "/vm/cases.jsonl", ["--level", "must"]))
    return [{"name": name, "dir": "/src", "seconds": 120 if how == "reduced" else 1500, "env": [],
             "argv": ["/usr/bin/python3", "-B", "internal/cases", path, "--build", "/vm/bin", "--engine", "native",
                      "--time-scale", TIME_SCALE, *more]} for name, path, more in runs]


def copy_module(root, modules, name):
    target = root / "vm" / "modules" / pathlib.Path(name).name
    packed = modules / (name + ".xz")
    if packed.exists():
        target.write_bytes(lzma.decompress(packed.read_bytes()))
    elif (modules / name).exists():
        shutil.copy(modules / name, target)
    return "/vm/modules/" + target.name


# The machine.

def boot(image, initrd, seconds):
    """Runs the VM to its end, copying its console, and returns what it said."""
    argv = ["qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "2048",
            "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-kernel", str(image), "-initrd", str(initrd),
            # The kernel's check of its timer panics when the host is too busy to
            # deliver ten ticks in time; an emulated timer needs no check.
            "-append", "console=ttyS0 quiet panic=-1 loglevel=3 no_timer_check"]
    said = []
    deadline = time.monotonic() + seconds
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as qemu:
        killer = subprocess.Popen([sys.executable, "-c", KILLER, str(qemu.pid), str(seconds)], stdin=subprocess.DEVNULL)
        with open(WORK / "console.log", "w", encoding="utf-8") as log:
            for raw in qemu.stdout:
                # The firmware leaves control sequences before the first line.
                line = re.sub(r"^.*\x1b\S*(?=vm: )", "", raw.decode("utf-8", "replace").rstrip("\r\n"))
                said.append(line)
                log.write(line + "\n")
                if worth_showing(said):
                    print(line, flush=True)
        status = qemu.wait()
        killer.kill()
        killer.wait()
    if time.monotonic() > deadline:
        print("vm: stopped after %d s" % seconds)
    elif not came_up(said):
        print("vm: process 1 never spoke, qemu ended with status %d; the console's last lines:" % status)
        for line in said[-30:]:
            print("vm: | " + line.encode("unicode_escape").decode(), flush=True)
    return said


def came_up(said):
    return any(line.startswith("vm: kernel ") for line in said)


def worth_showing(said):
    """Leaves out the firmware's greeting and what go test -v says of tests that
    pass; console.log has it all."""
    line = said[-1]
    if line.startswith("=== ") or (line.startswith("    ") and ".go:" not in line):
        return False
    return came_up(said)


# A reader that blocks on the console cannot watch the clock itself.
KILLER = """
import os, signal, sys, time
time.sleep(float(sys.argv[2]))
os.kill(int(sys.argv[1]), signal.SIGKILL)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("how", choices=sorted(OVERALL))
    parser.add_argument("--kernel", default="", help="start of the kernel's version, such as 6.1.")
    parser.add_argument("--cases", default="", help="a case file to run beside our own")
    parser.add_argument("--trees", default="", help="run the tests of these trees instead, with commas between")
    options = parser.parse_args()

    WORK.mkdir(parents=True, exist_ok=True)
    image, modules = kernel(options.kernel)
    base = debian()
    root = WORK / "payload"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    plan = payload(root, options.how, modules, options.cases, options.trees.split(",") if options.trees else TREES[options.how])
    (root / "vm" / "plan.json").write_text(json.dumps(plan))
    pack(root, WORK / "payload.cpio")
    with open(WORK / "initrd", "wb") as out:
        for part in (base, WORK / "payload.cpio"):
            with open(part, "rb") as archive:
                shutil.copyfileobj(archive, out)
    print("vm: booting %s, %d commands" % (image.name, len(plan["commands"])), flush=True)
    said = boot(image, WORK / "initrd", OVERALL[options.how])
    if not came_up(said):
        # No line of ours ran: emulation's failure, not the product's. Once more.
        print("vm: booting again", flush=True)
        said = boot(image, WORK / "initrd", OVERALL[options.how])
    sys.exit(verdict(said, len(plan["commands"])))


def verdict(said, commands):
    """Counts by the VM's own last line; a VM that did not come to it failed."""
    for line in said:
        if line.startswith("vm: kernel "):
            print(line)
    for line in said:
        match = re.match(r"vm: total (\d+) passed, (\d+) failed, (\d+) skipped", line)
        if match:
            passed, failed, skipped = map(int, match.groups())
            break
    else:
        ends = [re.search(r"(\d+) passed, (\d+) failed", l) for l in said if l.startswith("vm: end ")]
        passed, failed, skipped = sum(int(m[1]) for m in ends), sum(int(m[2]) for m in ends) + 1, 0
        print("vm: did not come to its end: %d of %d commands did" % (len(ends), commands))
    if skipped:
        print("vm: skipped: " + ", ".join(l.split()[2] for l in said if l.startswith("--- SKIP: ")))
    if passed == 0:
        failed += 1
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    main()

"""Drives a real, private sandboxd with a file of cases and judges each answer.

    python3 internal/cases FILE --build DIR [--group G] [--engine E] [--integrity I]
        [--level L] [--only id,id] [--tag T] [--time-scale N] [--results FILE]

The exit status is 1 when a case of level must, or of the level asked for, does
not hold; the last line counts those.
"""
import argparse
import json
import sys

import casefile
import layers
from daemon import Daemon
from running import BROKEN, HELD, NOT_BUILT, NOT_ENFORCED, Runner

# The groups whose cases need kinds that the daemon does not have yet.
LATER_GROUPS = ("ast",)

COLUMNS = (("daemon_rss_growth_mb", "rss MB"), ("daemon_fd_growth", "fds"), ("leftover_procs", "procs"),
           ("mount_growth", "mounts"), ("cgroup_growth", "cgroups"), ("tmp_growth", "files"))


def arguments():
    parser = argparse.ArgumentParser(prog="cases", description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--build", default="build", help="directory of the built binaries")
    parser.add_argument("--group", default="")
    parser.add_argument("--engine", default="")
    parser.add_argument("--config", default="", help="a file with more of the daemon's configuration")
    parser.add_argument("--integrity", default="")
    parser.add_argument("--level", default="")
    parser.add_argument("--only", default="", help="ids, with commas between")
    parser.add_argument("--tag", default="")
    parser.add_argument("--time-scale", type=float, default=1.0, help="how much slower than a normal machine this one is")
    parser.add_argument("--results", default="", help="write each result to this file, one JSON object a line")
    return parser.parse_args()


def chosen(case, options):
    only = options.only.split(",") if options.only else []
    return ((not options.group or case["group"] == options.group)
            and (not options.level or case["level"] == options.level)
            and (not options.tag or options.tag in case.get("tags", []))
            and (not only or case["id"] in only))


def excuse(case, outcome, options, missing):
    """The state of a case in view of what nobody claims to hold."""
    if outcome.state == BROKEN and missing and case["group"] in ("escape", "resource"):
        return NOT_ENFORCED
    if outcome.state == NOT_BUILT and options.group in LATER_GROUPS:
        return BROKEN
    return outcome.state


def show(case, outcome):
    numbers = "".join("%8s" % outcome.result.get(name, "-") for name, _ in COLUMNS)
    print("%-10s %-9s %-8s %-13s %7.2f %s  %s" % (case["id"], case["group"], case["level"], outcome.state,
                                                  outcome.seconds, numbers, case["title"]))
    if outcome.state == BROKEN or (outcome.state == NOT_ENFORCED and outcome.why):
        print("           " + outcome.why[:1500])
    sys.stdout.flush()


def main():
    options = arguments()
    cases = [c for c in casefile.load(options.file) if chosen(c, options)]
    if not cases:
        sys.exit("no case is chosen")
    outcomes = []
    with Daemon(options.build, options.engine, options.time_scale, options.config) as daemon:
        engine, missing = layers.lacking(daemon.client, options.engine)
        print("engine %s; layers of namespaces, root and cgroups that it does not hold: %s" % (engine, ", ".join(missing) or "none"))
        runner = Runner(daemon, options)
        warm_up(runner)
        print("%-10s %-9s %-8s %-13s %7s %s" % ("id", "group", "level", "state", "seconds", "".join("%8s" % t for _, t in COLUMNS)))
        for case in cases:
            outcome = runner.run(case)
            outcome.state = excuse(case, outcome, options, missing)
            outcomes.append((case, outcome))
            show(case, outcome)
            if outcome.state == BROKEN and not daemon.alive():
                print(daemon.log()[-4000:])
                break
    if options.results:
        write_results(options.results, outcomes)
    sys.exit(summary(outcomes, options.level or "must", len(cases)))


def warm_up(runner):
    """Lets the engine make what it keeps between runs, so that the first case is
    not charged for it."""
    plain = {"id": "warm-up", "kind": "exec", "needs": ["concurrent:4"], "solution": "", "tests": "", "expected": {}}
    outcome = runner.run(plain)
    if outcome.state != HELD:
        print("warm-up: " + outcome.why)


def write_results(path, outcomes):
    with open(path, "w", encoding="utf-8") as file:
        for case, outcome in outcomes:
            file.write(json.dumps({"id": case["id"], "result": outcome.result}) + "\n")


def summary(outcomes, required, wanted):
    print()
    for level in ("must", "should", "stretch", "info"):
        states = [o.state for c, o in outcomes if c["level"] == level]
        if states:
            print("%-8s %s" % (level, ", ".join("%d %s" % (states.count(s), s)
                                                for s in (HELD, BROKEN, NOT_ENFORCED, NOT_BUILT) if s in states)))
    states = [o.state for c, o in outcomes if c["level"] == required]
    broken = states.count(BROKEN)
    if len(outcomes) < wanted:
        print("stopped after %d of %d cases: the daemon was gone" % (len(outcomes), wanted))
        broken = max(broken, 1)
    print("%d passed, %d failed" % (states.count(HELD), broken))
    return 1 if broken or not outcomes else 0


if __name__ == "__main__":
    main()

"""Judges HumanEval problems: each with its canonical solution, which must pass
with as many assertions as its tests have, and with a body that returns None,
which must not.

    python3 internal/cases/humaneval.py FILE --build DIR [--engine E]

FILE is JSON lines, packed by gzip or not. The last line counts both kinds.
"""
import argparse
import ast
import concurrent.futures
import gzip
import json
import sys

import results
from daemon import Daemon

AT_ONCE = 4


def problems(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def assertions(tests):
    """How many assert statements a test text has."""
    return sum(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(tests)))


def checks(problem):
    """(name, request, judge) for both solutions of a problem."""
    tests = problem["test"] + "\ncheck(" + problem["entry_point"] + ")\n"
    wanted = assertions(tests)

    def solved(result):
        counts = (result["passed_count"], result["total_count"])
        if result["status"] != "passed" or not result["passed"]:
            return "is %s %s" % (result["status"], result["exception_type"] or result["failed_assertions"])
        return "" if counts == (wanted, wanted) else "counts %d of %d, the tests have %d" % (*counts, wanted)

    def unsolved(result):
        return "passes although it returns None" if result["passed"] else ""

    name = problem["task_id"]
    return [(name, {"solution": problem["prompt"] + problem["canonical_solution"], "tests": tests}, solved),
            (name + " returning None", {"solution": problem["prompt"] + "    return None\n", "tests": tests}, unsolved)]


def run(client, engine, check):
    name, request, judge = check
    if engine:
        request = {**request, "engine": engine}
    try:
        result = results.from_reply(client.ask("POST", "/v1/runs", request, timeout=120), 1)
    except OSError as error:
        return "%s: no answer: %s" % (name, error)
    why = result["refusal"] or ("" if result["well_formed"] else "the answer is not well formed") or judge(result)
    return "%s: %s" % (name, why) if why else ""


def main():
    parser = argparse.ArgumentParser(prog="humaneval", description=__doc__.split(":")[0])
    parser.add_argument("file")
    parser.add_argument("--build", default="build")
    parser.add_argument("--engine", default="")
    parser.add_argument("--config", default="", help="a file with more of the daemon's configuration")
    options = parser.parse_args()
    todo = [check for problem in problems(options.file) for check in checks(problem)]
    if not todo:
        sys.exit("the file has no problem")
    with Daemon(options.build, options.engine, config=options.config) as daemon, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        failures = list(filter(None, pool.map(lambda check: run(daemon.client, options.engine, check), todo)))
    for failure in failures:
        print("BROKEN " + failure[:600])
    print("%d passed, %d failed" % (len(todo) - len(failures), len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

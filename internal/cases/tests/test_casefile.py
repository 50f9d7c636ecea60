import argparse
import json
import os
import tempfile
import unittest

import casefile

OWN = os.path.join(os.path.dirname(os.path.dirname(__file__)), "testdata", "own.jsonl")


def options(**fields):
    return argparse.Namespace(**{"engine": "", "integrity": "", "time_scale": 1.0, **fields})


class TestCaseFile(unittest.TestCase):
    def test_expand_grows_a_marker(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            json.dump({"solution": "x = [@]", "expand": [{"field": "solution", "marker": "@", "text": "1,", "count": 3}]}, file)
            file.flush()
            self.assertEqual(casefile.load(file.name)[0]["solution"], "x = [1,1,1,]")

    def test_tokens_are_filled_in_everywhere(self):
        case = {"solution": "@@A@@ @@B@@", "steps": [{"tests": "@@A@@"}], "n": 3}
        self.assertEqual(casefile.fill_in(case, {"A": "x", "B": 7}), {"solution": "x 7", "steps": [{"tests": "x"}], "n": 3})

    def test_limits_are_named_only_when_asked_for(self):
        case = {"solution": "", "tests": ""}
        self.assertNotIn("limits", casefile.request_of(case, options()))
        self.assertEqual(casefile.request_of({**case, "limits": {"cpu_s": 2, "mem_mb": 64}}, options())["limits"],
                         {"cpu_ms": 2000, "memory_bytes": 64 << 20})
        self.assertEqual(casefile.request_of(case, options(time_scale=2))["limits"], {"cpu_ms": 20000, "wall_ms": 30000})

    def test_copies(self):
        self.assertEqual(casefile.copies({"needs": ["env-canary", "concurrent:4"]}), 4)
        self.assertEqual(casefile.copies({}), 1)

    def test_own_cases_are_whole(self):
        cases = casefile.load(OWN)
        self.assertEqual(len({c["id"] for c in cases}), len(cases))
        for case in cases:
            for name in ("group", "level", "title", "why", "expected"):
                self.assertIn(name, case, case["id"])
            for step in case.get("steps", [case]):
                compile(step["tests"], case["id"], "exec")


if __name__ == "__main__":
    unittest.main()

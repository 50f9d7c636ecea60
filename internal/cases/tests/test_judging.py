import unittest

import judging


def result(**fields):
    base = {"passed": False, "passed_count": 0, "total_count": 0, "failed_assertions": [], "exception_type": "",
            "exception_message": "", "stdout": "", "stderr": "", "status": "failed", "elapsed": 0.5}
    return {**base, **fields}


def holds(name, op, value, **fields):
    return judging.holds({"f": name, "op": op, "v": value}, result(**fields))


class TestPredicates(unittest.TestCase):
    def test_eq_tells_true_from_one(self):
        self.assertTrue(holds("passed", "eq", True, passed=True))
        self.assertFalse(holds("passed_count", "eq", True, passed_count=1))
        self.assertTrue(holds("json", "eq", [1], json=[True]))

    def test_empty_takes_none_text_and_list(self):
        for value in (None, "", []):
            self.assertTrue(holds("exception_type", "empty", True, exception_type=value))
        self.assertTrue(holds("exception_type", "empty", False, exception_type="KeyError"))

    def test_text_and_length_operators(self):
        self.assertTrue(holds("stdout", "contains", "b", stdout="abc"))
        self.assertTrue(holds("stdout", "regex", "^b", stdout="abc\nb") is False)
        self.assertTrue(holds("stdout", "len_le", 3, stdout="äöü"))
        self.assertTrue(holds("failed_assertions", "len", 0, failed_assertions=None))
        self.assertTrue(holds("exception_type", "in", ["A", "B"], exception_type="B"))

    def test_order_of_nothing_holds_never(self):
        self.assertFalse(holds("response_size", "le", 5))
        self.assertTrue(holds("passed_count", "lt", 1))

    def test_what_was_not_measured_is_harmless(self):
        self.assertFalse(holds("leftover_procs", "gt", 0))
        self.assertFalse(holds("daemon_rss_growth_mb", "le", 20))
        self.assertTrue(holds("daemon_alive", "eq", True))
        self.assertTrue(holds("wall_seen", "le", 0.5))

    def test_messages_come_from_texts_and_objects(self):
        self.assertTrue(holds("failed_assertions", "msgs", ["a", "b"], failed_assertions=["a", {"msg": "b"}]))

    def test_any_text_covers_every_text(self):
        for name in ("stdout", "stderr", "exception_message", "traceback"):
            self.assertTrue(holds("any_text", "contains", "LEAK", **{name: "a LEAK"}))
        self.assertTrue(holds("any_text", "contains", "LEAK", failed_assertions=["LEAK"]))

    def test_unknown_operator_is_an_error(self):
        with self.assertRaises(ValueError):
            holds("passed", "almost", True)


class TestClasses(unittest.TestCase):
    def test_verdicts_have_their_class(self):
        for status, wanted in {"wall_limit": "timeout", "cpu_limit": "timeout", "memory_limit": "memory", "output_limit": "output",
                               "crashed signal": "killed", "exited": "killed", "failed": "failed", "raised": "error"}.items():
            self.assertIn(wanted, judging.classes(result(status=status)), status)

    def test_message_counts_only_where_nobody_raised(self):
        self.assertNotIn("memory", judging.classes(result(status="raised", exception_type="ValueError", exception_message="out of memory")))
        self.assertIn("memory", judging.classes(result(status="x", exception_message="out of memory")))


class TestJudging(unittest.TestCase):
    def test_one_alternative_must_hold_whole(self):
        expected = {"any_of": [{"label": "a", "all": [{"f": "passed", "op": "eq", "v": True}]},
                               {"label": "b", "all": [{"f": "passed", "op": "eq", "v": False}, {"f": "stdout", "op": "eq", "v": ""}]}]}
        self.assertEqual(judging.judge_expected(expected, result()), (True, "b"))
        self.assertFalse(judging.judge_expected(expected, result(stdout="x"))[0])

    def test_never_goes_first(self):
        expected = {"any_of": [], "never": [{"f": "any_text", "op": "contains", "v": "LEAK"}]}
        self.assertFalse(judging.judge_expected(expected, result(stdout="LEAK"))[0])
        self.assertTrue(judging.judge_expected(expected, result())[0])

    def test_invariants(self):
        self.assertEqual(judging.invariants(result()), "")
        for broken in ({"passed": 1}, {"passed_count": 2, "total_count": 1}, {"passed": True, "total_count": 1},
                       {"passed": True, "exception_type": "E"}, {"passed_count": "1"}):
            self.assertNotEqual(judging.invariants(result(**broken)), "", broken)


if __name__ == "__main__":
    unittest.main()

"""Runs one case against the daemon and judges it."""
import threading
import time

import casefile
import results
from judging import invariants, judge_exec, judge_expected
from measuring import peak_kib, reset_peak, rss_kib, settled, settled_growth

# What became of a case.
HELD, BROKEN, NOT_ENFORCED, NOT_BUILT = "held", "BROKEN", "not enforced", "not built yet"


class Outcome:
    def __init__(self, state, why, result=None, seconds=0.0):
        self.state, self.why, self.result, self.seconds = state, why, result or {}, seconds


class Runner:
    def __init__(self, daemon, options):
        self._daemon, self._options = daemon, options

    def run(self, case):
        if case["kind"] not in ("exec", "exec-seq"):
            return Outcome(NOT_BUILT, "the daemon has no endpoint for kind %s" % case["kind"])
        begun = time.monotonic()
        case = casefile.fill_in(case, self._daemon.fixtures.tokens)
        with Measurement(self._daemon) as measured:
            answers = self._sequence(case) if case["kind"] == "exec-seq" else self._at_once(case)
        for _, result in answers:
            result.update(measured.values)
        held, why = True, ""
        for expected, result in answers:
            ok, reason = self._judge(expected, result)
            if not ok:
                held, why = False, reason
        if case["kind"] == "exec-seq" and held:
            held, why = judge_expected(case["expected"], answers[-1][1])
        # These two break every case, whatever it expects.
        if measured.values["fixture_touched"]:
            held, why = False, "a listener of the host was reached"
        elif measured.values["host_file_changed"]:
            held, why = False, "a file of the host was changed"
        return Outcome(HELD if held else BROKEN, why, answers[-1][1], time.monotonic() - begun)

    @staticmethod
    def _judge(expected, result):
        if result["refusal"]:
            return False, result["refusal"]
        return judge_exec(expected, result)

    def _sequence(self, case):
        answers = []
        for step in case["steps"]:
            for _ in range(step.get("repeat", 1)):
                answers.append((step, self._send({**case, **step})))
        return answers

    def _at_once(self, case):
        answers = [None] * casefile.copies(case)

        def one(number):
            answers[number] = (case["expected"], self._send(case))

        threads = [threading.Thread(target=one, args=(n,)) for n in range(len(answers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def _send(self, case):
        scale = self._options.time_scale
        begun = time.monotonic()
        try:
            reply = self._daemon.client.ask("POST", "/v1/runs", casefile.request_of(case, self._options),
                                            timeout=casefile.patience(case, self._options))
        except OSError as error:
            return results.no_answer(error, time.monotonic() - begun, scale)
        return results.from_reply(reply, scale)


class Measurement:
    """What a case does to the daemon and the host, in values afterwards."""

    def __init__(self, daemon):
        self._daemon = daemon
        self.values = {}

    def __enter__(self):
        self._before, self._fixtures = settled(self._daemon), self._daemon.fixtures.snapshot()
        reset_peak(self._daemon.pid)
        self._rss = rss_kib(self._daemon.pid)
        return self

    def __exit__(self, *_):
        daemon = self._daemon
        self.values["daemon_alive"] = daemon.alive()
        if self.values["daemon_alive"]:
            self.values["daemon_rss_growth_mb"] = round((peak_kib(daemon.pid) - self._rss) / 1024, 1)
            self.values.update(settled_growth(daemon, self._before))
        touches, stat = daemon.fixtures.snapshot()
        self.values["fixture_touched"] = touches != self._fixtures[0]
        self.values["host_file_changed"] = stat != self._fixtures[1]

"""Judges a result against what a case expects.

A predicate is {"f": field, "op": operator, "v": value}. Of expected.any_of one
alternative must hold whole; of expected.never nothing may.
"""
import json
import re

# What the words of a verdict and of an exception's name amount to. Cases are
# written for any product, so they ask for a class and not for a name.
CLASS_WORDS = {
    "timeout": r"time|tle|cpu|deadline|wall",
    "memory": r"mem|oom",
    "output": r"output|ole|flood",
    "killed": r"kill|sig|crash|abort|exit|abnormal|no report|died|runtime|violation|seccomp",
    "load_error": r"load|import|syntax|compile",
    "failed": r"fail|assert|wrong",
    "error": r"err|exc|raise",
}

# Exceptions that a product, not the program, may have named: there the message
# says more.
VAGUE_EXCEPTIONS = ("Killed", "TimeoutError", "SandboxError")

TEXT_FIELDS = ("any_text", "json_text")
TRUE_UNLESS_SEEN = ("well_formed", "daemon_alive")
HARM_COUNTS = ("leftover_procs", "fixture_touched", "host_file_changed")

ORDER = {
    "lt": lambda x, v: x < v,
    "le": lambda x, v: x <= v,
    "gt": lambda x, v: x > v,
    "ge": lambda x, v: x >= v,
}


def classes(result):
    found = {"passed"} if result.get("passed") is True else set()
    kind = result.get("exception_type")
    words = [str(result.get(name) or "") for name in ("status", "exception_type")]
    if not kind or kind in VAGUE_EXCEPTIONS:
        words.append(str(result.get("exception_message") or ""))
    text = " ".join(words)
    found |= {name for name, words in CLASS_WORDS.items() if re.search(words, text, re.IGNORECASE)}
    if kind == "MemoryError":
        found.add("memory")
    return found


def messages(failed):
    """The texts of failed assertions, whether given as texts or as objects."""
    texts = []
    for item in failed or []:
        if isinstance(item, dict):
            item = next((item[k] for k in ("message", "msg", "text", "error") if k in item), item)
        texts.append(item)
    return texts


def field(result, name):
    if name == "any_text":
        parts = [str(result.get(k) or "") for k in ("stdout", "stderr", "exception_message", "traceback")]
        return "\n".join(parts + [str(m) for m in messages(result.get("failed_assertions"))])
    if name == "json_text":
        return json.dumps(result.get("json"))
    if name == "response_bytes" and name not in result:
        return len(json.dumps(result))
    return result.get(name)


def holds(predicate, result):
    name, op, want = predicate["f"], predicate["op"], predicate["v"]
    if name == "json_has_key":
        return isinstance(result.get("json"), dict) and want in result["json"]
    have = field(result, name)
    if have is None and name not in result and name not in TEXT_FIELDS:
        if name in TRUE_UNLESS_SEEN:
            have = True
        elif name in HARM_COUNTS or name.endswith(("_growth", "_growth_mb")):
            return False  # not measured counts as harmless
        elif name == "wall_seen":
            have = result.get("elapsed", 0)
    return compare(name, op, have, want, result)


def compare(name, op, have, want, result):
    if op == "eq":
        # True is no 1 here, except deep in an answer.
        return have == want and (name == "json" or isinstance(have, bool) == isinstance(want, bool))
    if op == "empty":
        return (have in (None, "", [])) == want
    if op == "in":
        return have in want
    if op == "contains":
        return want in (have or "")
    if op == "regex":
        return re.search(want, have or "") is not None
    if op in ("len", "len_ge", "len_le"):
        size = len(have or [])
        return {"len": size == want, "len_ge": size >= want, "len_le": size <= want}[op]
    if op == "msgs":
        return messages(have) == want
    if op == "class_in":
        return not classes(result).isdisjoint(want)
    if op in ORDER:
        return have is not None and ORDER[op](have, want)
    raise ValueError("unknown operator %r" % op)


def judge_expected(expected, result):
    """(held, why): why names the alternative that held, or what broke."""
    for predicate in expected.get("never", []):
        if holds(predicate, result):
            return False, "must never hold: %s" % json.dumps(predicate)
    alternatives = expected.get("any_of", [])
    if not alternatives:
        return True, ""
    complaints = []
    for one in alternatives:
        broken = [p for p in one["all"] if not holds(p, result)]
        if not broken:
            return True, one["label"]
        complaints.append("%s: %s" % (one["label"], "; ".join(_complaint(p, result) for p in broken[:3])))
    return False, " || ".join(complaints)


def _complaint(predicate, result):
    name = predicate["f"]
    have = result.get("json") if name == "json_has_key" else field(result, name)
    if predicate["op"] == "class_in":
        have = "%s = %s" % (result.get("status"), sorted(classes(result)))
    return "%s %s %s (is %s)" % (name, predicate["op"], json.dumps(predicate["v"])[:80], json.dumps(have, default=str)[:120])


def invariants(result):
    """What holds for every answer to solution and tests; empty when all do."""
    if not isinstance(result.get("passed"), bool):
        return "passed is no boolean"
    passed, total = result.get("passed_count"), result.get("total_count")
    if not (isinstance(passed, int) and isinstance(total, int) and 0 <= passed <= total):
        return "counts %r of %r" % (passed, total)
    if result["passed"] and (passed != total or result.get("failed_assertions") or result.get("exception_type")):
        return "passed, but the counts or an error say otherwise"
    try:
        json.dumps(result).encode("utf-8")
    except (TypeError, ValueError) as error:
        return "cannot be encoded: %s" % error
    return ""


def judge_exec(expected, result):
    broken = invariants(result)
    if broken:
        return False, "invariant: " + broken
    return judge_expected(expected, result)

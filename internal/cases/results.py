"""Turns the daemon's answers into the results that cases speak of."""

# The fields of an answer that every client relies on, with their types.
FIELDS = {
    "passed": bool, "stdout": str, "stderr": str, "failed_assertions": list,
    "exception_type": str, "exception_message": str, "elapsed_seconds": (int, float),
    "passed_count": int, "total_count": int, "verdict": str, "id": str,
    "failures": list, "summary": str, "usage": dict, "layers": list, "engine": str,
}


def from_reply(reply, scale):
    """The result in a reply, with times as a machine of normal speed would show
    them. An error of the daemon's is told as refusal: it passes no case."""
    answer = reply.json()
    result = {
        "well_formed": reply.status == 200 and _well_formed(reply, answer),
        "response_bytes": len(reply.body),
        "wall_seen": reply.seconds / scale,
        "refusal": "",
    }
    if reply.status != 200 or not isinstance(answer, dict):
        text = reply.body.decode("utf-8", "replace")
        result["refusal"] = "the daemon answered %d: %s" % (reply.status, text[:400])
        return {**no_result(), **result}
    for name in FIELDS:
        result[name] = answer.get(name)
    result["traceback"] = answer.get("traceback", "")
    result["status"] = " ".join(filter(None, [answer.get("verdict"), answer.get("reason")]))
    result["elapsed"] = (answer.get("elapsed_seconds") or 0) / scale
    return result


def no_answer(error, seconds, scale):
    return {**no_result(), "well_formed": False, "wall_seen": seconds / scale, "refusal": "no answer: %s" % error}


def no_result():
    return {"passed": False, "stdout": "", "stderr": "", "failed_assertions": [], "exception_type": "",
            "exception_message": "", "passed_count": 0, "total_count": 0, "status": "", "elapsed": 0}


def _well_formed(reply, answer):
    if not reply.content_type.startswith("application/json") or not isinstance(answer, dict):
        return False
    return all(isinstance(answer.get(name), kind) for name, kind in FIELDS.items()) and \
        all(isinstance(m, str) for m in answer["failed_assertions"])

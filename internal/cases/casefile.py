"""Case files: one JSON object a line. See testdata/README.md for the fields."""
import json

# Limits of a case that names none.
DEFAULT_CPU, DEFAULT_WALL = 10, 15


def load(path):
    with open(path, encoding="utf-8") as lines:
        return [_expand(json.loads(line)) for line in lines if line.strip()]


def _expand(case):
    """Grows texts that would make the file too long: each marker becomes many
    copies of a short text."""
    for rule in case.get("expand", []):
        grown = rule["text"] * rule["count"]
        case[rule["field"]] = case[rule["field"]].replace(rule["marker"], grown)
    return case


def fill_in(value, tokens):
    """value with every @@NAME@@ in its strings replaced."""
    if isinstance(value, str):
        for name, text in tokens.items():
            value = value.replace("@@" + name + "@@", str(text))
        return value
    if isinstance(value, list):
        return [fill_in(item, tokens) for item in value]
    if isinstance(value, dict):
        return {key: fill_in(item, tokens) for key, item in value.items()}
    return value


def copies(case):
    """How many of the case are sent at once."""
    for need in case.get("needs", []):
        if need.startswith("concurrent:"):
            return int(need.split(":")[1])
    return 1


def request_of(case, options):
    """The body of POST /v1/runs. Limits are named only where the case, or a slow
    machine, asks for others than the product's own: an engine refuses a run
    that names a limit which it cannot enforce."""
    body = {"solution": case["solution"], "tests": case["tests"]}
    for name in ("engine", "integrity"):
        if getattr(options, name):
            body[name] = getattr(options, name)
    asked, scale = case.get("limits", {}), options.time_scale
    limits = {}
    if "cpu_s" in asked or scale != 1:
        limits["cpu_ms"] = int(asked.get("cpu_s", DEFAULT_CPU) * 1000 * scale)
    if "wall_s" in asked or scale != 1:
        limits["wall_ms"] = int(asked.get("wall_s", DEFAULT_WALL) * 1000 * scale)
    if "mem_mb" in asked:
        limits["memory_bytes"] = asked["mem_mb"] << 20
    if limits:
        body["limits"] = limits
    return body


def patience(case, options):
    """Seconds after which a reply counts as not coming."""
    return case.get("limits", {}).get("wall_s", DEFAULT_WALL) * options.time_scale + 60

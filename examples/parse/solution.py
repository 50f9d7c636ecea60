"""Reads key=value lines, and trips over a line without a value."""


def parse(text):
    pairs = {}
    for line in text.splitlines():
        key, value = line.split("=")
        pairs[key.strip()] = value.strip()
    return pairs

assert parse("a = 1") == {"a": "1"}
assert parse("a = 1\nb") == {"a": "1"}
assert parse("") == {}

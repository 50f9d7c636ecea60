assert merge([]) == []
assert merge([(1, 3), (2, 5), (7, 8)]) == [(1, 5), (7, 8)]
assert merge([(4, 6), (1, 4)]) == [(1, 6)], "touching intervals are one"
assert merge([(1, 10), (2, 3)]) == [(1, 10)], "an interval inside another adds nothing"

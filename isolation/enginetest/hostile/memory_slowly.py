# want: raised memory_limit
# limits: {"memory_bytes": 67108864}
keep = []
for _ in range(1200):
    keep.append(b"x" * (1 << 20))
print("LEAK: 1200 MiB")

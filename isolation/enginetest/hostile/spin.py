# want: cpu_limit
# limits: {"cpu_ms": 1000, "wall_ms": 60000}
while True:
    pass

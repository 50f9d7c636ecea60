# want: raised memory_limit
# limits: {"memory_bytes": 67108864}
block = bytearray(1 << 30)
for i in range(0, len(block), 4096):
    block[i] = 1
print("LEAK: 1 GiB")

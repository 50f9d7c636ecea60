# want: passed
# Dice come new to each program, and their state holds nothing that was drawn
# before. Two programs are compared by the engine's own tests.
import os, sys
if "PYTHONHASHSEED" in os.environ or not sys.flags.hash_randomization:
    print("LEAK: the hash seed is known")
if hash("a") == hash("b"):
    print("LEAK: no hash at all")
import random
state = random.getstate()
random.seed()
if state[1] == random.getstate()[1] or state[2] is not None:
    print("LEAK: a state that was in use")
if state[1][-1] != 624:
    print("LEAK: numbers were drawn: %d" % state[1][-1])
import tempfile
if tempfile._name_sequence is not None or tempfile.tempdir is not None:
    print("LEAK: names were drawn")
import uuid
if uuid._last_timestamp is not None or uuid._node is not None:
    print("LEAK: an identity was made")
try:
    import numpy.random
except ImportError:
    numpy = None
if numpy:
    began = numpy.random.get_state()[2]
    numpy.random.seed()
    if began != numpy.random.get_state()[2]:
        print("LEAK: numpy drew: %d" % began)
seeds = {os.urandom(16) for _ in range(3)} | {os.getrandom(16)}
if len(seeds) != 4:
    print("LEAK: the kernel's dice")

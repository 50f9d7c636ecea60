import base64
import os
import shutil
import tempfile
import unittest

import tests  # noqa: F401
from sandboxd_guest import collect, frames

LIMITS = {"artifact_bytes": 1000, "artifact_count": 3, "workspace_inodes": 100}


class MatchTest(unittest.TestCase):
    def test_patterns(self):
        for pattern, path, wanted in (
                ("*.txt", "a.txt", True), ("*.txt", "d/a.txt", False), ("**/*.txt", "a.txt", True),
                ("**/*.txt", "x/y/a.txt", True), ("out/**", "out/a/b", True), ("out/**", "out", False),
                ("out/**", "o/a", False), ("**", "a/b", True), ("a/**/b", "a/b", True),
                ("a/**/b", "a/x/y/b", True), ("a/**/b", "a/x/y/c", False), ("**/**/x", "x", True),
                ("[ab]?", "b1", True), ("a", "A", False)):
            with self.subTest(pattern=pattern, path=path):
                self.assertEqual(collect._matcher([pattern])(path), wanted)

    def test_many_stars_take_no_time(self):
        self.assertFalse(collect._matcher(["/".join(["**"] * 60 + ["x"])])("/".join(["a"] * 60)))


class SendTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.read, self.write = os.pipe()

    def tearDown(self):
        shutil.rmtree(self.root)
        os.close(self.read)

    def put(self, path, data=b"x"):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)

    def send(self, *patterns, **limits):
        cut = collect.send(self.write, self.root, list(patterns), dict(LIMITS, **limits))
        os.close(self.write)
        got = {}
        while True:
            try:
                frame = frames.read(self.read)
            except frames.Closed:
                return got, cut
            got[frame["path"]] = got.get(frame["path"], b"") + base64.b64decode(frame["data"])

    def test_sends_matching_files_only(self):
        self.put("out/a", b"1")
        self.put("out/deep/b", b"")
        self.put("other", b"2")
        self.assertEqual(self.send("out/**"), ({"out/a": b"1", "out/deep/b": b""}, False))

    def test_follows_no_link_and_opens_no_pipe(self):
        os.symlink("/etc/passwd", os.path.join(self.root, "link"))
        os.symlink("/etc", os.path.join(self.root, "dir"))
        os.mkfifo(os.path.join(self.root, "pipe"))
        self.put("real", b"yes")
        self.assertEqual(self.send("**"), ({"real": b"yes"}, False))

    def test_caps_count_and_bytes(self):
        for name in "abcde":
            self.put(name, b"1")
        self.put("big", b"0" * 2000)
        got, cut = self.send("**")
        self.assertEqual((sorted(got), cut), (["a", "b", "c"], True))

    def test_too_big_is_left_out_whole(self):
        self.put("big", b"0" * 2000)
        self.put("small", b"1")
        self.assertEqual(self.send("**"), ({"small": b"1"}, True))

    def test_names_that_are_no_text(self):
        self.put("bad\udcff", b"1")
        self.assertEqual(self.send("**"), ({"bad\\xff": b"1"}, False))

    def test_depth_and_number_are_bounded(self):
        self.put("/".join(["d"] * 50) + "/f")
        self.assertEqual(self.send("**"), ({}, False))

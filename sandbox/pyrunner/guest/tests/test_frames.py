import json
import os
import unittest

import tests  # noqa: F401
from sandboxd_guest import frames

VECTORS = os.path.join(os.path.dirname(__file__), "..", "..", "testdata", "frames.json")


class FramesTest(unittest.TestCase):
    def setUp(self):
        self.read, self.write = os.pipe()

    def tearDown(self):
        os.close(self.read)
        if self.write >= 0:
            os.close(self.write)

    def close(self):
        os.close(self.write)
        self.write = -1

    def test_writes_the_shared_vectors(self):
        with open(VECTORS) as file:
            vectors = json.load(file)
        for vector in vectors:
            with self.subTest(vector["name"]):
                fields = dict(vector["fields"])
                frames.write(self.write, fields.pop("type"), **fields)
                size = int.from_bytes(os.read(self.read, 4), "big")
                body = os.read(self.read, size)
                self.assertEqual(json.loads(body), json.loads(vector["body"]))
                self.assertEqual(len(body), size)

    def test_reads_what_it_writes(self):
        frames.write(self.write, "output", data="eA==")
        self.assertEqual(frames.read(self.read), {"type": "output", "data": "eA=="})

    def test_end_and_nonsense(self):
        for data in (b"", b"\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\5{}"):
            with self.subTest(data=data):
                os.write(self.write, data)
                self.close()
                with self.assertRaises(frames.Closed):
                    frames.read(self.read)
                os.close(self.read)
                self.read, self.write = os.pipe()

    def test_refuses_a_frame_over_the_cap(self):
        with self.assertRaises(ValueError):
            frames.write(self.write, "output", data="x" * frames.MAX_TO_DAEMON)

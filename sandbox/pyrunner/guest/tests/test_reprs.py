import sys
import unittest

import tests  # noqa: F401  (registers the package)
from sandboxd_guest import reprs


class Raises:
    def __init__(self, error):
        self.error = error

    def __repr__(self):
        raise self.error

    __str__ = __repr__


class Long:
    def __repr__(self):
        return "x" * 10000


class Text(str):
    def __len__(self):
        return 0

    def __getitem__(self, index):
        return "forged"


class ReturnsText:
    def __repr__(self):
        return Text("honest")


class Quiet(BaseException):
    pass


class ShowTest(unittest.TestCase):
    def test_equals_repr_while_there_is_room(self):
        values = [
            None, True, 1, -5, 10**600, 1.5, 2j, "a'b\n", b"\x00", bytearray(b"x"), ..., NotImplemented, range(3),
            [], (), {}, set(), frozenset(), [1], (1,), (1, 2), {1: "a", (2,): [3]}, {1}, frozenset([1]),
            [[[]], ({},)], "\udc00", object, len, slice(1, 2),
        ]
        for value in values + [values]:
            self.assertEqual(reprs.show(value, 100000), repr(value))

    def test_recursive_containers(self):
        nested = []
        nested.append(nested)
        mapping = {}
        mapping[1] = mapping
        self.assertEqual(reprs.show(nested, 100), "[[...]]")
        self.assertEqual(reprs.show(mapping, 100), "{1: {...}}")
        shared = [1]
        self.assertEqual(reprs.show([shared, shared], 100), "[[1], [1]]")

    def test_cuts(self):
        self.assertEqual(reprs.show("a" * 50, 10), "'aaaaaaaaa… [cut, 50 characters in all]")
        self.assertEqual(reprs.show(b"a" * 50, 10), "b'aaaaaaaa… [cut, 50 bytes in all]")
        self.assertEqual(reprs.show(list(range(100)), 10), "[0, 1, 2, … [cut, 100 items in all]")
        self.assertEqual(reprs.show(Long(), 10), "x" * 10 + "… [cut]")

    def test_never_walks_more_than_the_room(self):
        for value in ("a" * 10**8, [0] * 10**7, {"k": [["b" * 10**8]]}):
            self.assertLess(len(reprs.show(value, 4096)), 4200)

    def test_depth(self):
        deep = []
        for _ in range(100000):
            deep = [deep]
        self.assertIn("[…]", reprs.show(deep, 4096))
        while deep:
            deep = deep[0]

    def test_great_integers(self):
        self.assertEqual(reprs.show(10**10000, 4096), "<int of 33220 bits>")
        self.assertEqual(reprs.show([1 << 10**7], 4096), "[<int of 10000001 bits>]")
        if hasattr(sys, "set_int_max_str_digits"):
            before = sys.get_int_max_str_digits()
            self.addCleanup(sys.set_int_max_str_digits, before)
            sys.set_int_max_str_digits(640)
            self.assertEqual(reprs.show(10**700, 4096), "<int of 2326 bits>")

    def test_hostile_objects(self):
        for error in (ValueError(), SystemExit(0), KeyboardInterrupt(), Quiet(), RecursionError()):
            name = type(error).__name__
            expected = "[1, <Raises could not be shown: %s>]" % name
            self.assertEqual(reprs.show([1, Raises(error)], 100), expected)
        self.assertEqual(reprs.show(ReturnsText(), 100), "honest")
        self.assertIs(type(reprs.show(ReturnsText(), 100)), str)

    def test_repr_that_recurses(self):
        class Loop:
            def __repr__(self):
                return repr(self)

        self.assertEqual(reprs.show(Loop(), 100), "<Loop could not be shown: RecursionError>")

    def test_container_changed_while_it_is_shown(self):
        class Grows:
            def __repr__(self):
                mapping[len(mapping)] = 0
                return "."

        mapping = {0: Grows(), 1: 1}
        self.assertEqual(reprs.show(mapping, 100), "<dict could not be shown: RuntimeError>")


class MessageTest(unittest.TestCase):
    def test_is_str_of_the_object(self):
        for value in ("a: b\nc", None, 5, ("t", 2), {"k": [1]}, ValueError("inner"), KeyError("k"), "", b"x"):
            self.assertEqual(reprs.message(value, 1000), str(value))

    def test_cut_says_how_long_it_was(self):
        self.assertEqual(reprs.message("ab" * 50, 3), "aba… [cut, 100 characters in all]")
        self.assertEqual(reprs.message(Long(), 2), "xx… [cut, 10000 characters in all]")
        self.assertEqual(reprs.message([1, 2, 3], 4), "[1, … [cut, 3 items in all]")

    def test_hostile_objects(self):
        for error in (RuntimeError("x"), SystemExit(0), Quiet()):
            expected = "<message could not be shown: %s>" % type(error).__name__
            self.assertEqual(reprs.message(Raises(error), 100), expected)
        self.assertEqual(reprs.message(Text("honest"), 100), "honest")


class NameTest(unittest.TestCase):
    def test_metaclass_cannot_lie(self):
        class Meta(type):
            __name__ = property(lambda cls: 1 / 0)

        class Odd(Exception, metaclass=Meta):
            pass

        self.assertEqual(reprs.type_name(Odd), "Odd")
        self.assertTrue(reprs.qualified_name(Odd).endswith("test_metaclass_cannot_lie.<locals>.Odd"))

    def test_cut_and_plain(self):
        long = type("N" * 1000, (), {})
        self.assertEqual(reprs.type_name(long), "N" * 200 + "… [cut, 1000 characters in all]")
        named = type("x", (), {"__module__": 5})
        self.assertEqual(reprs.qualified_name(named), "<unknown>.x")
        self.assertEqual(reprs.qualified_name(ValueError), "ValueError")


class FitTest(unittest.TestCase):
    def test_counts_what_is_sent(self):
        import json
        for letter in ("x", "\0", "é", "\U0001f600", "\""):
            text = reprs.fit(letter * 10000, 5000)
            self.assertLess(len(json.dumps(text)), 5300)
            self.assertTrue("[cut, 10000 characters in all]" in text)
        self.assertEqual(reprs.fit("é" * 10, 62), "é" * 10)


if __name__ == "__main__":
    unittest.main()

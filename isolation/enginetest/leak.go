package enginetest

import (
	"strings"
	"testing"

	"github.com/sandboxd/sandboxd/sandbox"
)

// testsStayHidden: while the solution is loaded, nothing that Python code can
// reach holds the tests.
func (s suite) testsStayHidden(t *testing.T) {
	const mark = "mark_that_only_the_tests_have"
	solution := `
import gc, os, sys

def holds(value, depth=0):
    if isinstance(value, (str, bytes)):
        return "only_the_" + "tests_have" in (value if isinstance(value, str) else value.decode("latin-1"))
    if depth > 6:
        return False
    if isinstance(value, dict):
        return any(holds(v, depth + 1) for v in list(value.values()))
    if isinstance(value, (list, tuple, set)):
        return any(holds(v, depth + 1) for v in list(value))
    return False

found = []
frame = sys._getframe()
while frame:
    if frame.f_globals is not globals() and (holds(frame.f_locals) or holds(frame.f_globals)):
        found.append("frame " + frame.f_code.co_name)
    frame = frame.f_back
for item in gc.get_objects():
    if item is not globals() and isinstance(item, (dict, list, tuple)) and item is not found and holds(item):
        found.append("heap " + type(item).__name__)
for number in range(3, 64):
    try:
        os.set_blocking(number, False)
        if holds(os.read(number, 1 << 16)):
            found.append("descriptor %d" % number)
    except OSError:
        pass
    finally:
        try:
            os.set_blocking(number, True)
        except OSError:
            pass
print("FOUND", found)
`
	r := runSpec(t, s.engine, tests(solution, mark+" = 1\nassert "+mark+" == 1\n"))
	if r.Verdict != sandbox.Passed || !strings.Contains(r.Stdout, "FOUND []") {
		t.Errorf("verdict %s, %s\n%s", r.Verdict, r.Stdout, r.Summary)
	}
}

package native_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// TestInheritance_InterpreterIsUntouched: a child changes whatever it can of an
// interpreter and of its process; the next child finds it as it was.
func TestInheritance_InterpreterIsUntouched(t *testing.T) {
	modules := []string{"collections", "ctypes", "decimal", "json", "locale", "logging", "math", "random", "signal", "threading", "warnings"}
	text := `
import builtins, collections, ctypes, decimal, gc, json, locale, logging, math, mmap, os, resource, signal, sys, threading, time, warnings
libc = ctypes.CDLL(None, use_errno=True)
libc.getenv.restype = ctypes.c_char_p
strange = [name for name, there in dict(
    builtin=hasattr(builtins, "left") or len("abc") != 3, module="left" in sys.modules or hasattr(json, "left"),
    value=math.pi != 3.141592653589793, method=json.dumps(1) != "1", path=any("left" in p for p in sys.path),
    environ="LEFT" in os.environ or libc.getenv(b"LEFT") is not None, cwd=os.getcwd() != os.environ["HOME"],
    mask=os.umask(0o22) != 0o22, handler=signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL,
    blocked=bool(signal.pthread_sigmask(signal.SIG_BLOCK, ())), pending=bool(signal.sigpending()),
    decimal=decimal.getcontext().prec != 28, locale=locale.setlocale(locale.LC_NUMERIC) not in ("C", "C.UTF-8"),
    gc=not gc.isenabled() or gc.get_threshold()[0] != 700, recursion=sys.getrecursionlimit() != 1000,
    switch=abs(sys.getswitchinterval() - 0.005) > 1e-9, hook=sys.excepthook is not sys.__excepthook__,
    trace=sys.gettrace() is not None, log=logging.getLogger().handlers != [] or logging.getLogger("left").level != 0,
    filters=any("left" in str(f) for f in warnings.filters), zone=time.tzname != ("UTC", "UTC"),
    threads=threading.active_count() != 1 or len(os.listdir("/proc/self/task")) != 1,
    nice=os.nice(0) != 0, limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 64, affinity=len(os.sched_getaffinity(0)) != os.cpu_count(),
    timer=signal.getitimer(signal.ITIMER_REAL) != (0, 0), name=open("/proc/self/comm").read().strip() == "left",
    type=hasattr(collections.ChainMap(), "left"), argv=len(sys.argv) != 1, interned=getattr(json.JSONEncoder, "item_separator") != ", ",
).items() if there]
print("strange", strange)
marks = ctypes.c_int.in_dll(libc, "optind")
if marks.value != 1:
    print("memory of libc was changed")
marks.value = 4711
builtins.left = builtins.len = lambda *_: 4711
sys.modules["left"] = json.left = sys
math.pi, json.dumps, json.JSONEncoder.item_separator = 3, repr, "left"
collections.ChainMap.left = 1
sys.path.insert(0, "/left")
os.environ["LEFT"] = "1"
os.chdir("/tmp")
os.umask(0)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
os.kill(os.getpid(), signal.SIGUSR2)
decimal.getcontext().prec = decimal.DefaultContext.prec = 3
try:
    locale.setlocale(locale.LC_ALL, "POSIX")
except locale.Error:
    pass
gc.disable()
gc.set_threshold(7)
sys.setrecursionlimit(4711)
sys.setswitchinterval(1)
logging.basicConfig()
logging.getLogger("left").setLevel(10)
warnings.simplefilter("error", type("left", (Warning,), {}))
os.environ["TZ"] = "Asia/Tokyo"
time.tzset()
os.nice(5)
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
signal.setitimer(signal.ITIMER_REAL, 3600)
libc.prctl(15, b"left")
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
fd = os.dup2(0, 15)
os.write(1, b"done\n")
os._exit(0)
`
	for name, ready := range map[string]int{"fresh": 0, "pooled": 2} {
		t.Run(name, func(t *testing.T) {
			e := newEngineLike(t, native.Config{Ready: ready, Preload: modules})
			for range 5 {
				if got := runOn(t, e, sandbox.DefaultLimits(), text).stdout(); got != "strange []\ndone\n" {
					t.Fatal(got)
				}
			}
		})
	}
}

// TestInheritance_CodeIsEachRunsOwn: a program overwrites what machine code it can;
// sandboxes that are made later run none of it.
func TestInheritance_CodeIsEachRunsOwn(t *testing.T) {
	e := newEngine(t)
	l := sandbox.DefaultLimits()
	spoil := `
import ctypes
libc = ctypes.CDLL(None)
for line in open("/proc/self/maps"):
    span, rights, _, _, _, *name = line.split(None, 5)
    if "x" in rights and (not name or name[0].startswith("/dev/zero")):
        start, end = (int(part, 16) for part in span.split("-"))
        if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 7) == 0:
            ctypes.memset(start, 0xcc, end - start)  # int3
            print("spoiled")
`
	for range 2 {
		r := runOn(t, e, l, spoil)
		t.Logf("%q", r.stdout())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		end, err := runOnce(ctx, e, "after", "print('right')")
		if err != nil || end.Stdout.Text() != "right\n" {
			t.Fatalf("the next sandbox: %v, %q, %+v", err, end.Stdout.Text(), end.Outcome)
		}
	}
}

// TestInheritance_MemoryHoldsNothingOfOthers: a program reads all of its memory; it
// finds neither the daemon's secrets nor a word of a run that ended or goes on.
func TestInheritance_MemoryHoldsNothingOfOthers(t *testing.T) {
	const first, second = "sesame4711", "opens0815"
	t.Setenv("SANDBOXD_TEST_SECRET", first+second)
	e := newEngineWithPool(t, 2)
	fill(t, e, 2)
	mark := fmt.Sprintf("mark = %q\n", first+second)
	if r := runOn(t, e, sandbox.DefaultLimits(), mark+"import os\nos.environ['MARK'] = mark\nopen('/tmp/mark', 'w').write(mark)\nprint(mark)\n"); r.Outcome.ExitCode != 0 {
		t.Fatal(r.stdout())
	}
	text := mark + "import time\nprint(mark, flush=True)\ntime.sleep(60)\n"
	l := sandbox.DefaultLimits()
	other, err := e.Create(t.Context(), isolation.Plan{ID: "other", Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan error, 1)
	conv := other.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l))
	conv.OnStart = func() { close(started) }
	go func() {
		_, err := conv.Run()
		ended <- err
	}()
	<-started
	// The halves stand apart, so that neither text nor copies hold the mark.
	look := fmt.Sprintf(`
import ctypes
first, second, size, found = b%q, b%q, 0, []
for line in open("/proc/self/maps"):
    span, rights, _, _, _, *name = line.split(None, 5)
    if rights[0] != "r" or name and name[0].startswith(("[vvar", "[vsyscall")):
        continue
    start, end = (int(part, 16) for part in span.split("-"))
    for part in range(start, end, 1 << 20):
        data = ctypes.string_at(part, min((1 << 20) + 64, end - part))
        size += len(data)
        at = data.find(first)
        while at >= 0:
            if data[at + len(first):at + len(first) + len(second)] == second:
                found.append(line)
            at = data.find(first, at + 1)
print("found", found, size > 4 << 20)
`, first, second)
	for range 3 {
		if got := runOn(t, e, l, look).stdout(); got != "found [] True\n" {
			t.Fatal(got)
		}
	}
	if r := runOn(t, e, l, mark+look); !strings.HasPrefix(r.stdout(), "found ['") {
		t.Errorf("the program that has the mark does not find it: %s", r.stdout())
	}
	if err := errors.Join(other.Destroy(t.Context()), <-ended); err != nil {
		t.Error(err)
	}
}

// TestInheritance_DiceAreEachRunsOwn: programs forked from one interpreter that has
// loaded every kind of dice draw nothing alike.
func TestInheritance_DiceAreEachRunsOwn(t *testing.T) {
	text := `
import sys
missing = [name for name in ("random", "secrets", "tempfile", "uuid", "numpy.random") if name not in sys.modules]
import os, random, secrets, tempfile, uuid
words = [random.random(), random.getrandbits(64), random.Random().random(), random.SystemRandom().random(), os.urandom(8).hex(),
         os.getrandom(8).hex(), secrets.token_hex(8), uuid.uuid4(), uuid.uuid1(), next(tempfile._get_candidate_names()),
         os.path.basename(tempfile.mkdtemp())]
try:
    import numpy
    words += [numpy.random.random(), numpy.random.default_rng().random(), numpy.random.RandomState().random_sample()]
    import numpy.linalg
    assert (numpy.ones((200, 200)) @ numpy.ones((200, 200)))[0, 0] == 200
except ImportError:
    missing.remove("numpy.random")
print(*words)
print("missing", missing, file=sys.stderr)
`
	for name, ready := range map[string]int{"fresh": 0, "pooled": 4} {
		t.Run(name, func(t *testing.T) {
			e := newEngineLike(t, native.Config{Ready: ready, Preload: []string{"random", "secrets", "tempfile", "uuid", "numpy", "numpy.random"}})
			if ready > 0 {
				fill(t, e, ready)
			}
			seen := map[string]int{}
			for i := range 8 {
				r := runOn(t, e, sandbox.DefaultLimits(), text)
				if got := r.Stderr.Text(); got != "missing []\n" {
					t.Fatal(got)
				}
				for word := range strings.FieldsSeq(r.Stdout.Text()) {
					if before, ok := seen[word]; ok {
						t.Errorf("runs %d and %d drew %q", before, i, word)
					}
					seen[word] = i
				}
			}
			if len(seen) < 8*11 {
				t.Errorf("only %d words", len(seen))
			}
		})
	}
}

// TestInheritance_HashSeedDiesWithItsZygote: what one zygote's children could learn
// of its seed is worth nothing with the next.
func TestInheritance_HashSeedDiesWithItsZygote(t *testing.T) {
	e := newEngine(t)
	seen := map[string]bool{}
	for range 3 {
		seen[runOn(t, e, sandbox.DefaultLimits(), "print(hash('a'), hash(b'b'), hash('') if hash('') else '')").stdout()] = true
		e.KillZygote()
		for { // the loss is noticed by the order that fails
			if _, err := runOnce(t.Context(), e, "heal", "pass"); err == nil {
				break
			} else if sandbox.KindOf(err) != sandbox.KindUnavailable {
				t.Fatal(err)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d seeds in three zygotes", len(seen))
	}
}

// TestPool_PostureIsThatOfAFreshSandbox compares all that the posture program
// sees, more than the golden file has.
func TestPool_PostureIsThatOfAFreshSandbox(t *testing.T) {
	look := func(e *native.Engine) isolation.Posture {
		l := sandbox.DefaultLimits()
		sb, err := e.Create(t.Context(), isolation.Plan{ID: "look", Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		p, err := isolation.LookInside(t.Context(), sb, l)
		if err := errors.Join(err, sb.Destroy(t.Context())); err != nil {
			t.Fatal(err)
		}
		for _, m := range p.Mounts { // which ids a sandbox has is chance
			for i, option := range m.Super {
				if strings.HasPrefix(option, "uid=") || strings.HasPrefix(option, "gid=") {
					m.Super[i] = option[:4]
				}
			}
		}
		return p
	}
	pooled := newEngineWithPool(t, 2)
	fill(t, pooled, 2)
	waited := look(pooled)
	if err := pooled.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh := look(newEngine(t))
	if diff := cmp.Diff(fresh, waited, cmpopts.IgnoreFields(isolation.Posture{}, "Namespaces", "UIDMap", "GIDMap")); diff != "" {
		t.Errorf("(-fresh +from the pool)\n%s", diff)
	}
	for name, link := range fresh.Namespaces {
		if (link == "") != (waited.Namespaces[name] == "") {
			t.Errorf("namespace %s: %q fresh, %q from the pool", name, link, waited.Namespaces[name])
		}
	}
}

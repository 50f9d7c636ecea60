package native_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/native"
	"github.com/sandboxd/sandboxd/sandbox"
	"github.com/sandboxd/sandboxd/sandbox/pyrunner"
)

// reported is a run with what the kernel counted and what it ran on.
type reported struct {
	pyrunner.Ending
	facts   sandbox.Outcome
	network int
	firstID uint32
	group   string
}

func (r reported) stdout() string { return r.Stdout.Text() + r.Stderr.Text() }

var runs int

// runOn runs a program to its end.
func runOn(t *testing.T, e *native.Engine, l sandbox.Limits, text string) reported {
	t.Helper()
	runs++
	sb, err := e.Create(t.Context(), isolation.Plan{ID: fmt.Sprintf("run-%d", runs), Image: "host", Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	r := reported{network: native.NetworkOf(sb), firstID: native.FirstIDOf(sb), group: native.GroupOf(sb)}
	r.Ending, err = sb.Converse(pyrunner.NewRequest(&sandbox.Spec{Program: &text}, sandbox.ModeScript, l)).Run()
	err = errors.Join(err, sb.Kill())
	facts, waitErr := sb.Wait(t.Context())
	r.facts = facts
	if err := errors.Join(err, waitErr, sb.Destroy(context.WithoutCancel(t.Context()))); err != nil {
		t.Fatal(err)
	}
	return r
}

// lookAtNetwork shows what a network tells of itself, without what the whole
// machine shares.
const lookAtNetwork = `
files = ("snmp", "snmp6", "netstat", "unix", "tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp",
         "icmp6", "packet", "ip6_flowlabel", "igmp", "igmp6", "mcfilter", "mcfilter6", "anycast6", "dev", "dev_mcast",
         "if_inet6", "route", "ipv6_route", "arp", "rt6_stats")
for name in files:
    try:
        with open("/proc/self/net/" + name) as file:
            print("==", name, file.read(), sep="\n")
    except OSError:
        pass
`

// TestSharing_NetworkTellsNothing: a network that is used again looks like one
// that was never used.
func TestSharing_NetworkTellsNothing(t *testing.T) {
	for name, plant := range map[string]string{
		"sockets": `
import os, socket
keep = []
for name in ("\0left", "/tmp/left", "left", "\0" + "x" * 100):
    s = socket.socket(socket.AF_UNIX)
    s.bind(name)
    s.listen()
    keep.append(s)
for family, kind in ((socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET6, socket.SOCK_DGRAM), (socket.AF_INET, socket.SOCK_STREAM)):
    s = socket.socket(family, kind)
    keep.append(s)
    try:
        s.bind(("", 4711))
        s.listen()
    except OSError:
        pass
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [b.fileno(), keep[0].fileno()])
socket.send_fds(b, [b"x"], [a.fileno()])
group = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for level, option, value in ((41, 20, b"\xff\x02" + b"\0" * 13 + b"\x77" + b"\0" * 4), (0, 35, b"\xef\1\1\1" + b"\0" * 4)):
    try:
        group.setsockopt(level, option, value)
    except OSError:
        pass
`,
		"flow labels": `
import socket, struct
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for label in range(1, 4):
    # struct in6_flowlabel_req, shared with anybody, to linger for a minute
    request = b"\x20\x01a word to others"[:16] + struct.pack(">I", label) + struct.pack("=BBHHHI", 0, 255, 1, 60, 60, 0)
    try:
        s.setsockopt(41, 32, request)
    except OSError:
        pass
`,
		"counters": `
import socket
for _ in range(300):
    for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with socket.socket(family, kind) as s:
                for call in (s.connect, lambda a: s.sendto(b"x", a)):
                    try:
                        call((address, 9))
                    except OSError:
                        pass
`,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			// The engine's own probe has used the first network; it stays occupied.
			probed, err := e.Create(t.Context(), isolation.Plan{ID: "probed", Image: "host", Limits: sandbox.DefaultLimits()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := probed.Destroy(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			before := runOn(t, e, sandbox.DefaultLimits(), lookAtNetwork)
			if again := runOn(t, e, sandbox.DefaultLimits(), lookAtNetwork); again.network != before.network {
				t.Fatalf("network %d after %d: none is used again, so this test shows nothing", again.network, before.network)
			}
			if r := runOn(t, e, sandbox.DefaultLimits(), plant); r.Outcome.ExitCode != 0 || !r.Outcome.Exited {
				t.Fatal(r.stdout())
			}
			after := runOn(t, e, sandbox.DefaultLimits(), lookAtNetwork)
			if diff := cmp.Diff(strings.Split(before.stdout(), "\n"), strings.Split(after.stdout(), "\n")); diff != "" {
				t.Errorf("the network tells of the run before (-unused +used again):\n%s", diff)
			}
		})
	}
}

// TestSharing_PortsAndNamesAreFree: what one run has bound, the next can bind.
func TestSharing_PortsAndNamesAreFree(t *testing.T) {
	e := newEngine(t)
	text := `
import socket
keep = []
for name in ("\0name", "/tmp/name", "name"):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(name)
        print("somebody listens at", repr(name))
    except OSError:
        pass
    s = socket.socket(socket.AF_UNIX)
    s.bind(name)
    s.listen(1)
    keep.append(s)
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET, kind)
    try:
        s.bind(("", 4711))
        s.listen(1)
    except OSError as error:
        if error.errno == 98:
            print("the port is taken")
    keep.append(s)
print("bound")
`
	networks := map[int]bool{}
	for range 4 {
		r := runOn(t, e, sandbox.DefaultLimits(), text)
		if got := r.stdout(); got != "bound\n" {
			t.Fatal(got)
		}
		networks[r.network] = true
	}
	if len(networks) != 1 {
		t.Errorf("%d networks for four runs: this test shows nothing", len(networks))
	}
}

// TestSharing_GroupCountsOneRun: what a run before has used is not the next
// one's, and its death for memory is its own.
func TestSharing_GroupCountsOneRun(t *testing.T) {
	e := newEngineWithPool(t, 1)
	fill(t, e, 1)
	hogs := map[string]bool{}
	l := sandbox.DefaultLimits()
	for range 3 {
		r := runOn(t, e, l, "import time\nx = bytearray(150 << 20)\nx[::4096] = b'1' * len(x[::4096])\nend = time.process_time() + 0.4\nwhile time.process_time() < end:\n    pass\n")
		if r.facts.Usage.MemoryPeakBytes < 140<<20 || r.facts.Usage.CPUMillis < 390 {
			t.Fatalf("a hog's usage is %+v", r.facts.Usage)
		}
		hogs[r.group] = true
	}
	small := l
	small.MemoryBytes = 40 << 20
	r := runOn(t, e, small, "import os\nfor _ in range(8):\n    fd = os.memfd_create('x')\n    for _ in range(15):\n        os.write(fd, b'x' * (1 << 20))\n")
	if r.facts.OOMKills == 0 {
		t.Fatalf("nobody was killed for memory: %s", r.stdout())
	}
	hogs[r.group] = true
	again := 0
	for range 24 {
		r := runOn(t, e, l, "print('x' * 10)")
		if !hogs[r.group] {
			continue
		}
		again++
		if u := r.facts.Usage; u.MemoryPeakBytes > 60<<20 || u.MemoryPeakBytes == 0 || u.CPUMillis > 200 || r.facts.OOMKills != 0 || !r.Outcome.Exited {
			t.Errorf("group %s: %+v, %d kills, %+v", r.group, u, r.facts.OOMKills, r.Outcome)
		}
	}
	if again == 0 {
		t.Error("no group of a hog was used again: this test shows nothing")
	}
}

// TestSharing_IDsOwnNothing: the next owner of a sandbox's host ids finds nothing
// that the last one has left.
func TestSharing_IDsOwnNothing(t *testing.T) {
	e := newEngine(t)
	text := `
import ctypes, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.sem_open.restype = ctypes.c_void_p
places = ("/tmp", "/dev/shm", ".", os.environ["HOME"])
for place in places:
    for name in os.listdir(place):
        print("found", place, name)
for call, args in (("shm_open", (b"/left", 0, 0)), ("mq_open", (b"/left", 0)), ("shmget", (4711, 0, 0)), ("semget", (4711, 0, 0)),
                   ("msgget", (4711, 0))):
    if getattr(libc, call)(*args) >= 0:
        print("found", call)
if libc.sem_open(b"/left", 0):
    print("found a semaphore")
x86 = platform.machine() == "x86_64"
for name, numbers, args in (("keyctl", (250, 219), (0, -4, 0)), ("add_key", (248, 217), (b"user", b"left", b"x", 1, -4)),
                            ("request_key", (249, 218), (b"user", b"left", None, -4))):
    if libc.syscall(ctypes.c_long(numbers[not x86]), *args) >= 0:
        print("got", name)
for place in places[:3]:
    with open(place + "/left", "w") as file:
        file.write("left")
    os.mkfifo(place + "/pipe")
    socket.socket(socket.AF_UNIX).bind(place + "/socket")
    os.chmod(place + "/left", 0o4777)
libc.shm_open(b"/left", os.O_CREAT | os.O_RDWR, 0o666)
libc.sem_open(b"/left", os.O_CREAT, 0o666, 1)
for call, args in (("mq_open", (b"/left", os.O_CREAT | os.O_RDWR, 0o666, None)), ("shmget", (4711, 4096, 0o1666)),
                   ("semget", (4711, 1, 0o1666)), ("msgget", (4711, 0o1666))):
    if getattr(libc, call)(*args) >= 0:
        print("got", call)
print("looked", flush=True)
os._exit(0)
`
	owners := map[uint32]int{}
	for range 40 {
		r := runOn(t, e, sandbox.DefaultLimits(), text)
		if got := r.stdout(); got != "looked\n" {
			t.Fatalf("ids %d, used %d times before:\n%s", r.firstID, owners[r.firstID], got)
		}
		owners[r.firstID]++
	}
	if len(owners) == 40 {
		t.Error("no ids were used again: this test shows nothing")
	}
}

// TestSharing_InterpreterIsUntouched: a child changes whatever it can of an
// interpreter and of its process; the next child finds it as it was.
func TestSharing_InterpreterIsUntouched(t *testing.T) {
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
			e := newEngineWithModules(t, ready, modules...)
			for range 5 {
				if got := runOn(t, e, sandbox.DefaultLimits(), text).stdout(); got != "strange []\ndone\n" {
					t.Fatal(got)
				}
			}
		})
	}
}

// TestSharing_MemoryHoldsNothingOfOthers: a program reads all of its memory; it
// finds neither the daemon's secrets nor a word of a run that ended or goes on.
func TestSharing_MemoryHoldsNothingOfOthers(t *testing.T) {
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
	other, err := e.Create(t.Context(), isolation.Plan{ID: "other", Image: "host", Limits: l})
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

// TestSharing_DiceAreEachRunsOwn: programs forked from one interpreter that has
// loaded every kind of dice draw nothing alike.
func TestSharing_DiceAreEachRunsOwn(t *testing.T) {
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
			e := newEngineWithModules(t, ready, "random", "secrets", "tempfile", "uuid", "numpy", "numpy.random")
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

// TestSharing_HashSeedDiesWithItsZygote: what one zygote's children could learn
// of its seed is worth nothing with the next.
func TestSharing_HashSeedDiesWithItsZygote(t *testing.T) {
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
		sb, err := e.Create(t.Context(), isolation.Plan{ID: "look", Image: "host", Limits: l})
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

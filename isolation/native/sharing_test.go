package native_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	sb, err := e.Create(t.Context(), isolation.Plan{ID: fmt.Sprintf("run-%d", runs), Limits: l})
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
			probed, err := e.Create(t.Context(), isolation.Plan{ID: "probed", Limits: sandbox.DefaultLimits()})
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
	for range 80 {
		r := runOn(t, e, sandbox.DefaultLimits(), text)
		if got := r.stdout(); got != "looked\n" {
			t.Fatalf("ids %d, used %d times before:\n%s", r.firstID, owners[r.firstID], got)
		}
		owners[r.firstID]++
	}
	if len(owners) == 80 {
		t.Error("no ids were used again: this test shows nothing")
	}
}

package native_test

import (
	"testing"

	"github.com/sandboxd/sandboxd/sandbox"
)

// TestEnding_IsToldRight: how a program ends is told as the kernel tells its
// parent, by a supervisor and without one.
func TestEnding_IsToldRight(t *testing.T) {
	const head = "import ctypes, os, platform, signal, sys, threading, time\nlibc = ctypes.CDLL(None)\n" +
		"def leave(code):  # ends the thread and not the process\n    libc.syscall(ctypes.c_long(60 if platform.machine() == 'x86_64' else 93), ctypes.c_long(code))\n" +
		"def thread(f, *args):\n    t = threading.Thread(target=f, args=args)\n    t.start()\n    return t\n"
	const signaled = -1
	e := newEngine(t)
	for name, c := range map[string]struct {
		text         string
		code, signal int
	}{
		"end":                         {"pass", 0, 0},
		"exit 0":                      {"sys.exit(0)", 0, 0},
		"exit 1":                      {"sys.exit(1)", 1, 0},
		"exit 255":                    {"sys.exit(255)", 255, 0},
		"exit 256":                    {"sys.exit(256)", 0, 0},
		"exit -1":                     {"sys.exit(-1)", 255, 0},
		"exit with words":             {"sys.exit('words')", 1, 0},
		"exception":                   {"1 / 0", 1, 0},
		"_exit 0":                     {"os._exit(0)", 0, 0},
		"_exit 1":                     {"os._exit(1)", 1, 0},
		"_exit 255":                   {"os._exit(255)", 255, 0},
		"_exit 70":                    {"os._exit(70)", 70, 0},
		"SIGHUP":                      {"os.kill(os.getpid(), signal.SIGHUP)", signaled, 1},
		"SIGQUIT":                     {"os.kill(os.getpid(), signal.SIGQUIT)", signaled, 3},
		"SIGILL":                      {"os.kill(os.getpid(), signal.SIGILL)", signaled, 4},
		"SIGABRT":                     {"os.kill(os.getpid(), signal.SIGABRT)", signaled, 6},
		"abort":                       {"os.abort()", signaled, 6},
		"SIGKILL":                     {"os.kill(os.getpid(), signal.SIGKILL)", signaled, 9},
		"SIGSEGV":                     {"os.kill(os.getpid(), signal.SIGSEGV)", signaled, 11},
		"a bad address":               {"ctypes.string_at(1)", signaled, 11},
		"no memory at all":            {"libc.munmap(ctypes.c_void_p(4096), ctypes.c_size_t((1 << 47) - (1 << 13)))", signaled, 11},
		"SIGTERM":                     {"os.kill(os.getpid(), signal.SIGTERM)", signaled, 15},
		"SIGPIPE let through":         {"signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nos.kill(os.getpid(), signal.SIGPIPE)", signaled, 13},
		"SIGRTMAX":                    {"os.kill(os.getpid(), 64)", signaled, 64},
		"raised":                      {"signal.raise_signal(signal.SIGTERM)", signaled, 15},
		"to its group":                {"os.kill(0, signal.SIGTERM)", signaled, 15},
		"abort in a thread":           {"thread(os.abort).join()", signaled, 6},
		"SIGKILL from a thread":       {"thread(os.kill, os.getpid(), 9).join()\ntime.sleep(60)", signaled, 9},
		"SIGTERM to a thread":         {"t = thread(time.sleep, 60)\nsignal.pthread_kill(t.ident, 15)\ntime.sleep(60)", signaled, 15},
		"bad address in a thread":     {"thread(ctypes.string_at, 1).join()", signaled, 11},
		"_exit in a thread":           {"thread(os._exit, 7)\ntime.sleep(60)", 7, 0},
		"_exit 0 in a thread":         {"thread(os._exit, 0)\ntime.sleep(60)", 0, 0},
		"main leaves, _exit":          {"thread(lambda: (time.sleep(0.1), os._exit(9)))\nleave(3)", 9, 0},
		"main leaves, _exit 0":        {"thread(lambda: (time.sleep(0.1), os._exit(0)))\nleave(3)", 0, 0},
		"main leaves, SIGKILL":        {"thread(lambda: (time.sleep(0.1), os.kill(os.getpid(), 9)))\nleave(3)", signaled, 9},
		"main leaves, abort":          {"thread(lambda: (time.sleep(0.1), os.abort()))\nleave(0)", signaled, 6},
		"main leaves, the last too":   {"thread(lambda: (time.sleep(0.1), leave(5)))\nleave(5)", 5, 0},
		"main leaves, output goes on": {"thread(lambda: (time.sleep(0.1), os.write(1, b'on'), os._exit(2)))\nleave(0)", 2, 0},
	} {
		for kind, processes := range map[string]int64{"direct": 0, "supervised": 1} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				l := sandbox.DefaultLimits()
				l.Processes = processes
				r := runOn(t, e, l, head+c.text+"\n")
				o := r.Outcome
				if o.Lost || o.Exited != (c.signal == 0) || o.Signal != c.signal || o.Exited && o.ExitCode != c.code {
					t.Errorf("%+v, want code %d, signal %d\n%s", o, c.code, c.signal, r.stdout())
				}
			})
		}
	}
}

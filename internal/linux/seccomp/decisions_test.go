package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/elastic/go-seccomp-bpf/arch"
)

var arches = []string{"amd64", "arm64"}

// allProfiles are the four combinations.
var allProfiles = []Profile{
	{Name: "plain"},
	{Name: "processes", AllowProcesses: true},
	{Name: "sockets", AllowSockets: true},
	{Name: "both", AllowProcesses: true, AllowSockets: true},
}

// decide interprets a filter. The interpreter loads big endian, so the words of
// struct seccomp_data are written that way, in the order of a little-endian
// machine.
func decide(t *testing.T, filter block, audit, number uint32, args ...uint64) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(filter)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNumber:], number)
	binary.BigEndian.PutUint32(data[offArch:], audit)
	for i, arg := range args {
		binary.BigEndian.PutUint32(data[offArgs+8*i:], uint32(arg))
		binary.BigEndian.PutUint32(data[offArgs+8*i+4:], uint32(arg>>32))
	}
	action, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(action)
}

const (
	allowed = uint32(retAllow)
	eperm   = uint32(retErrno | errEPERM)
	enosys  = uint32(retErrno | errENOSYS)
	enotty  = uint32(retErrno | errENOTTY)
	eafno   = uint32(retErrno | errEAFNOSUPPORT)
	eproto  = uint32(retErrno | errEPROTONOSUPPORT)
)

const high = 1 << 32 // a bit that the kernel throws away

// decision is a row: a call with arguments and the answer it must get.
type decision struct {
	call string
	args []uint64
	want uint32
}

func row(want uint32, call string, args ...uint64) decision { return decision{call, args, want} }

func check(t *testing.T, archName string, filter block, rows []decision) {
	t.Helper()
	table, err := lookup(archName)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		number, ok := table.numbers[r.call]
		if !ok {
			if !known(r.call) {
				t.Errorf("row for unknown call %q", r.call)
			}
			continue
		}
		if got := decide(t, filter, table.audit, uint32(number), r.args...); got != r.want {
			t.Errorf("%s %s%#x: %#x, want %#x", archName, r.call, r.args, got, r.want)
		}
	}
}

func rowsFor(want uint32, calls []string) []decision {
	rows := make([]decision, 0, len(calls))
	for _, call := range calls {
		rows = append(rows, row(want, call), row(want, call, ^uint64(0), ^uint64(0), ^uint64(0)))
	}
	return rows
}

// commonRows hold in every profile.
func commonRows() []decision {
	rows := slices.Concat(rowsFor(allowed, allowedCalls), rowsFor(eperm, deniedCalls), rowsFor(eperm, hostCalls))
	rows = append(rows,
		row(enosys, "clone3"),
		row(enosys, "io_setup"), row(enosys, "cachestat"), row(enosys, "uselib"), row(enosys, "lsm_set_self_attr"),
		row(allowed, "clone", 0x3d0f00), // pthread_create
		row(allowed, "clone", 0x3d0f00|high),
		row(eperm, "ioctl", 1, 0x5412), row(eperm, "ioctl", 1, 0x5412|high), // TIOCSTI
		row(eperm, "ioctl", 1, 0x541c), row(eperm, "ioctl", 1, 0x540e), row(eperm, "ioctl", 1, 0x541d),
		row(eperm, "ioctl", 1, 0x5423),
		row(allowed, "ioctl", 1, 0x5401), row(allowed, "ioctl", 1, 0x5401|high), row(allowed, "ioctl", 1, 0x5413),
		row(allowed, "ioctl", 1, 0x541b), row(allowed, "ioctl", 1, 0x5451),
		row(enotty, "ioctl", 1, 0), row(enotty, "ioctl", 1, 0x8933), // SIOCGIFINDEX
		row(allowed, "prctl", 15), row(allowed, "prctl", 16), row(allowed, "prctl", 38), row(allowed, "prctl", 39),
		row(allowed, "prctl", 3), row(allowed, "prctl", 23), row(allowed, "prctl", 0x53564d41),
		row(eperm, "prctl", 1), row(eperm, "prctl", 4), row(eperm, "prctl", 4|high), row(eperm, "prctl", 22), // SET_PDEATHSIG, SET_DUMPABLE, SET_SECCOMP
		row(eperm, "prctl", 35), row(eperm, "prctl", 0x59616d61), // SET_MM, SET_PTRACER
		row(eperm, "prctl", 24), row(eperm, "prctl", 28), row(eperm, "prctl", 36), row(eperm, "prctl", 47),
		row(eperm, "prctl", 53), row(eperm, "prctl", 57),
		row(allowed, "personality", 0), row(allowed, "personality", 0xffffffff), row(allowed, "personality", ^uint64(0)),
		row(eperm, "personality", 0x0040000), row(eperm, "personality", 0x400000), row(eperm, "personality", 8),
		row(allowed, "mknod", 0, 0x11a4), row(allowed, "mknodat", 0, 0, 0x11a4), // S_IFIFO|0644
		row(allowed, "mknodat", 0, 0, 0x1a4), row(allowed, "mknodat", 0, 0, 0x81a4),
		row(eperm, "mknod", 0, 0x21a4), row(eperm, "mknodat", 0, 0, 0x61a4), // character, block
		row(eperm, "mknodat", 0, 0, 0x121a4), // the kernel drops bit 16: still a character device
		row(allowed, "sched_setscheduler", 0, 0), row(allowed, "sched_setscheduler", 0, 3), row(allowed, "sched_setscheduler", 0, 5),
		row(eperm, "sched_setscheduler", 0, 1), row(eperm, "sched_setscheduler", 0, 2), row(eperm, "sched_setscheduler", 0, 6),
		row(eperm, "sched_setscheduler", 0, 0x40000001),
		row(allowed, "prlimit64", 0, 7), row(allowed, "prlimit64", high, 7), row(eperm, "prlimit64", 1, 7),
		row(allowed, "fcntl", 3, 1), row(allowed, "fcntl", 3, 1030), row(eperm, "fcntl", 3, 1026), row(eperm, "fcntl", 3, 1026|high),
		row(eperm, "setsockopt", 3, 1, 26), row(eperm, "setsockopt", 3, 1, 50), row(eperm, "setsockopt", 3, 1, 51),
		row(eperm, "setsockopt", 3, 1, 52), row(eperm, "setsockopt", 3, 6, 31), row(allowed, "setsockopt", 3, 1, 2),
		row(allowed, "setsockopt", 3, 6, 1), row(allowed, "setsockopt", 3, 0, 26),
		row(eperm, "setsockopt", 3, 41, 32), row(allowed, "setsockopt", 3, 41, 26), row(allowed, "setsockopt", 3, 1, 32),
		row(allowed, "socketpair", 1, 1), row(allowed, "socketpair", 1, 1|0x80000), row(allowed, "socketpair", 1, 5),
		row(eafno, "socketpair", 2, 1), row(eafno, "socketpair", 30, 1), row(eperm, "socketpair", 1, 3),
	)
	for _, flag := range []uint64{
		0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x8000,
	} {
		rows = append(rows, row(eperm, "clone", flag|17), row(eperm, "clone", flag|0x3d0f00))
	}
	return rows
}

func processRows(open bool) []decision {
	answer := eperm
	if open {
		answer = allowed
	}
	rows := rowsFor(answer, processCalls)
	return append(rows,
		row(answer, "clone", 17),            // fork
		row(answer, "clone", 0x4111),        // posix_spawn: CLONE_VM|CLONE_VFORK
		row(answer, "clone", 0x01200000|17), // glibc's fork
	)
}

func socketRows(open bool) []decision {
	if !open {
		return append(rowsFor(eperm, socketCalls), row(eperm, "socket", 1, 1), row(eperm, "socket", 2, 1),
			row(eperm, "socket", 40, 1), row(eperm, "socketpair", 1, 2))
	}
	rows := append(rowsFor(allowed, socketCalls), row(allowed, "socketpair", 1, 2))
	for _, family := range []uint64{1, 2, 10} {
		rows = append(rows, row(allowed, "socket", family, 1), row(allowed, "socket", family, 2|0x80800),
			row(allowed, "socket", family|high, 1), row(eperm, "socket", family, 3), row(eperm, "socket", family, 4),
			row(eperm, "socket", family, 10))
	}
	rows = append(rows, row(allowed, "socket", 1, 5), row(eperm, "socket", 2, 5), row(eperm, "socket", 10, 5),
		row(allowed, "socket", 2, 1, 6), row(allowed, "socket", 10, 2, 17),
		row(eproto, "socket", 2, 1, 262), row(eproto, "socket", 2, 1, 132), row(eproto, "socket", 2, 2, 1),
		row(eproto, "socket", 10, 2, 136), row(eproto, "socket", 2, 1, 256))
	for family := range uint64(50) {
		if family != 1 && family != 2 && family != 10 {
			rows = append(rows, row(eafno, "socket", family, 1))
		}
	}
	return rows
}

func TestProgram_Decisions(t *testing.T) {
	for _, archName := range arches {
		for _, p := range allProfiles {
			t.Run(archName+"/"+p.Name, func(t *testing.T) {
				filter, err := program(archName, p)
				if err != nil {
					t.Fatal(err)
				}
				check(t, archName, filter, commonRows())
				check(t, archName, filter, processRows(p.AllowProcesses))
				check(t, archName, filter, socketRows(p.AllowSockets))
			})
		}
	}
}

func TestSupervisor_Decisions(t *testing.T) {
	for _, archName := range arches {
		filter, err := supervisor(archName)
		if err != nil {
			t.Fatal(err)
		}
		rows := slices.Concat(rowsFor(eperm, hostCalls), rowsFor(allowed, allowedCalls), rowsFor(allowed, processCalls))
		for _, call := range []string{
			"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "prctl",
			"setresuid", "setresgid", "setgroups", "capset", "kill", "execve", "prlimit64",
		} {
			rows = append(rows, row(allowed, call))
		}
		rows = append(rows, row(enosys, "clone3"), row(allowed, "clone", 17), row(allowed, "clone", 0x8000|17),
			row(eperm, "clone", 0x10000000|17), row(eafno, "socket", 40, 1), row(eafno, "socket", 38, 5),
			row(eafno, "socket", 16, 3), row(allowed, "socketpair", 1, 1), row(eperm, "personality", 0x40000))
		check(t, archName, filter, rows)
	}
}

// TestProgram_NothingUnlisted sweeps all numbers: what no rule names is ENOSYS.
func TestProgram_NothingUnlisted(t *testing.T) {
	named := slices.Concat(allowedCalls, deniedCalls, hostCalls, processCalls, socketCalls)
	for call := range conditionalCalls(Profile{}) {
		named = append(named, call)
	}
	for _, archName := range arches {
		table, err := lookup(archName)
		if err != nil {
			t.Fatal(err)
		}
		filter, err := program(archName, Profile{AllowProcesses: true, AllowSockets: true})
		if err != nil {
			t.Fatal(err)
		}
		byNumber := map[uint32]bool{}
		for _, call := range named {
			if number, ok := table.numbers[call]; ok {
				byNumber[uint32(number)] = true
			}
		}
		for number := range uint32(2000) {
			if got := decide(t, filter, table.audit, number); !byNumber[number] && got != enosys {
				t.Errorf("%s number %d: %#x", archName, number, got)
			}
		}
		for _, number := range []uint32{0x7fffffff, 0xffffffff, 1 << 20} {
			if got := decide(t, filter, table.audit, number); got != enosys {
				t.Errorf("%s number %#x: %#x", archName, number, got)
			}
		}
	}
}

func TestFilters_ForeignConvention(t *testing.T) {
	for _, archName := range arches {
		table, err := lookup(archName)
		if err != nil {
			t.Fatal(err)
		}
		filters := map[string]func() (block, error){
			"program":    func() (block, error) { return program(archName, Profile{AllowProcesses: true}) },
			"supervisor": func() (block, error) { return supervisor(archName) },
		}
		for name, build := range filters {
			filter, err := build()
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range []*arch.Info{arch.X86_64, arch.AARCH64, arch.I386, arch.ARM} {
				got := decide(t, filter, uint32(other.ID), uint32(table.numbers["getpid"]))
				if want := map[bool]uint32{true: allowed, false: retKillProcess}[uint32(other.ID) == table.audit]; got != want {
					t.Errorf("%s %s under %s: %#x, want %#x", archName, name, other.Name, got, want)
				}
			}
			if !table.hasX32 {
				continue
			}
			for _, number := range []uint32{0, 39, 520, 0x3fffffff} { // read, getpid, x32 execve
				if got := decide(t, filter, table.audit, x32Bit|number); got != enosys {
					t.Errorf("%s x32 number %d: %#x", name, number, got)
				}
			}
		}
	}
}

// TestFilters_Size keeps installing cheap: the kernel compiles the filter and
// interprets it for every number (see tree).
func TestFilters_Size(t *testing.T) {
	for _, archName := range arches {
		for _, p := range allProfiles {
			filter, err := Program(archName, p)
			if err != nil {
				t.Fatal(err)
			}
			if len(filter)%sizeOfInstruction != 0 || len(filter) > 300*sizeOfInstruction {
				t.Errorf("%s %s: %d bytes", archName, p.Name, len(filter))
			}
		}
		if filter, err := Supervisor(archName); err != nil || len(filter) > 160*sizeOfInstruction {
			t.Errorf("%s supervisor: %d bytes, %v", archName, len(filter), err)
		}
	}
}

const sizeOfInstruction = 8

func TestTree_LongJumps(t *testing.T) {
	// Distinct errno for each even number: nothing merges, left halves exceed 255.
	rules := map[uint32]block{}
	for n := uint32(0); n < 1000; n += 2 {
		rules[n] = errno(n + 1)
	}
	table, err := lookup("amd64")
	if err != nil {
		t.Fatal(err)
	}
	filter, err := assemble(table, rules, allow())
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint32(1002) {
		want := allowed
		if _, ok := rules[n]; ok {
			want = retErrno | (n + 1)
		}
		if got := decide(t, filter, table.audit, n); got != want {
			t.Fatalf("number %d: %#x, want %#x", n, got, want)
		}
	}
}

func TestRuleset_RefusesMistakes(t *testing.T) {
	table, err := lookup("amd64")
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{{"read", "read"}, {"raed"}} {
		rules := newRuleset(table)
		rules.add(allow(), names...)
		if rules.err == nil {
			t.Errorf("%v was taken", names)
		}
	}
}

func TestNumbers(t *testing.T) {
	for archName, want := range map[string]map[string]int{
		"amd64": {"getpid": 39, "clone3": 435, "landlock_create_ruleset": 444},
		"arm64": {"getpid": 172, "clone3": 435, "landlock_create_ruleset": 444},
	} {
		got, err := Numbers(archName, "getpid", "clone3", "landlock_create_ruleset")
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v", archName, got, err)
		}
	}
	if _, err := Numbers("arm64", "fork"); err == nil {
		t.Error("arm64 has no fork")
	}
	if _, err := Numbers("riscv64", "read"); err == nil {
		t.Error("there is no table for riscv64")
	}
}

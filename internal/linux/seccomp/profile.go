package seccomp

import "fmt"

// Profile says what a program may do beyond computing.
type Profile struct {
	// Name is the policy's name in messages; it changes no rule.
	Name string
	// AllowProcesses lets the program make processes and execute files. Without
	// it only threads can be made, and execve answers EPERM.
	AllowProcesses bool
	// AllowSockets lets the program make Unix, IPv4 and IPv6 sockets. Without it
	// only connected Unix pairs (socketpair) can be made.
	AllowSockets bool
}

// Program returns the filter for an untrusted program on arch ("amd64" or
// "arm64"): an array of struct sock_filter (8 bytes each) for seccomp(2).
func Program(arch string, p Profile) ([]byte, error) {
	program, err := program(arch, p)
	if err != nil {
		return nil, fmt.Errorf("profile %q: %w", p.Name, err)
	}
	return encode(program)
}

func program(arch string, p Profile) (block, error) {
	t, err := lookup(arch)
	if err != nil {
		return nil, err
	}
	rules := newRuleset(t)
	rules.add(allow(), allowedCalls...)
	rules.add(deny(), deniedCalls...)
	rules.add(deny(), hostCalls...)
	rules.add(gate(p.AllowProcesses), processCalls...)
	rules.add(gate(p.AllowSockets), socketCalls...)
	for name, body := range conditionalCalls(p) {
		rules.add(body, name)
	}
	if rules.err != nil {
		return nil, rules.err
	}
	return assemble(t, rules.blocks, absent())
}

// Supervisor returns the outer filter for a sandbox's trusted PID 1. It allows
// by default: the supervisor still has to change ids, restrict itself and
// install the program's filter, and filters only add up. It takes away what
// would hurt the host if the supervisor were taken over.
func Supervisor(arch string) ([]byte, error) {
	program, err := supervisor(arch)
	if err != nil {
		return nil, fmt.Errorf("supervisor filter: %w", err)
	}
	return encode(program)
}

func supervisor(arch string) (block, error) {
	t, err := lookup(arch)
	if err != nil {
		return nil, err
	}
	rules := newRuleset(t)
	rules.add(deny(), hostCalls...)
	rules.add(absent(), "clone3")
	rules.add(anyBit(0, cloneNamespaces, deny(), allow()), "clone")
	rules.add(checkFamily(), "socket", "socketpair")
	rules.add(checkPersonality(), "personality")
	if rules.err != nil {
		return nil, rules.err
	}
	return assemble(t, rules.blocks, allow())
}

// gate answers for calls that a profile allows or refuses as a whole.
func gate(open bool) block {
	if open {
		return allow()
	}
	return deny()
}

// ruleset collects blocks by number and remembers the first mistake.
type ruleset struct {
	table  *table
	blocks map[uint32]block
	seen   map[string]bool
	err    error
}

func newRuleset(t *table) *ruleset {
	return &ruleset{table: t, blocks: map[uint32]block{}, seen: map[string]bool{}}
}

func (r *ruleset) add(body block, names ...string) {
	for _, name := range names {
		switch {
		case r.err != nil:
			return
		case !known(name):
			r.err = fmt.Errorf("rule for unknown system call %q", name)
		case r.seen[name]:
			r.err = fmt.Errorf("two rules for system call %q", name)
		default:
			r.seen[name] = true
			if number, ok := r.table.numbers[name]; ok {
				r.blocks[uint32(number)] = body
			}
		}
	}
}

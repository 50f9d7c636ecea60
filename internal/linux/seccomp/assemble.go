package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/net/bpf"
)

// Offsets in struct seccomp_data (include/uapi/linux/seccomp.h). Arguments are
// 64-bit; both architectures are little endian, so the low half comes first.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// Return values (include/uapi/linux/seccomp.h).
const (
	retKillProcess = 0x80000000
	retErrno       = 0x00050000
	retAllow       = 0x7fff0000
)

// maxInstructions is BPF_MAXINSNS (include/uapi/linux/bpf_common.h).
const maxInstructions = 4096

// block is a piece of a program whose every path ends in a return. Blocks are
// composed by putting one behind another, so jumps need no labels.
type block []bpf.Instruction

// single reports whether b is one return, and can merge with an equal one.
func (b block) single() bool { return len(b) == 1 }

// span is a run of system call numbers from start to the next span.
type span struct {
	start uint32
	body  block
}

// spans covers all numbers: the rules, and fallback between and behind them.
func spans(rules map[uint32]block, fallback block) []span {
	numbers := make([]uint32, 0, len(rules))
	for number := range rules {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	var out []span
	next := uint32(0)
	for _, number := range numbers {
		if number > next {
			out = appendSpan(out, span{next, fallback})
		}
		out = appendSpan(out, span{number, rules[number]})
		next = number + 1
	}
	return appendSpan(out, span{next, fallback})
}

// appendSpan merges s into the last span when both are the same plain return.
func appendSpan(out []span, s span) []span {
	if len(out) > 0 {
		last := out[len(out)-1].body
		if last.single() && s.body.single() && last[0] == s.body[0] {
			return out
		}
	}
	return append(out, s)
}

// code is a program under construction, last instruction first: jumps only go
// forward, so their targets are known when they are written. A label is the
// number of instructions from there to the end.
type code struct {
	reversed block
	returns  map[bpf.Instruction]int // labels of plain returns, to be shared
}

// maxSkip is how far a conditional jump reaches.
const maxSkip = 255

func (c *code) emit(ins bpf.Instruction) int {
	c.reversed = append(c.reversed, ins)
	return len(c.reversed)
}

// distance is what an instruction written next must skip to reach label.
func (c *code) distance(label int) int { return len(c.reversed) - label }

// near returns a label for the same place that is in reach of the next
// conditional jump, even behind one more instruction.
func (c *code) near(label int) int {
	if c.distance(label) < maxSkip {
		return label
	}
	return c.emit(bpf.Jump{Skip: uint32(c.distance(label))})
}

// body writes a block, or finds an equal plain return in reach.
func (c *code) body(b block) int {
	if b.single() {
		if label, ok := c.returns[b[0]]; ok && c.distance(label) < maxSkip {
			return label
		}
		label := c.emit(b[0])
		c.returns[b[0]] = label
		return label
	}
	for _, ins := range slices.Backward(b) {
		c.emit(ins)
	}
	return len(c.reversed)
}

// tree writes a binary search over spans with the number in the accumulator. The
// kernel compiles the filter and runs it once for every number when it is
// installed (seccomp_cache_prepare, Linux 5.11): size and depth both count in
// the start of every run.
func (c *code) tree(s []span) int {
	if len(s) == 1 {
		return c.body(s[0].body)
	}
	mid := len(s) / 2
	right := c.tree(s[mid:])
	left := c.tree(s[:mid])
	right = c.near(right)
	left = c.near(left)
	return c.emit(bpf.JumpIf{
		Cond: bpf.JumpGreaterOrEqual, Val: s[mid].start,
		SkipTrue: uint8(c.distance(right)), SkipFalse: uint8(c.distance(left)),
	})
}

// search returns the tree as a block.
func search(s []span) block {
	c := code{returns: map[bpf.Instruction]int{}}
	entry := c.tree(s)
	if c.distance(entry) > 0 { // a single shared return, which is not the first
		c.emit(bpf.Jump{Skip: uint32(c.distance(entry))})
	}
	slices.Reverse(c.reversed)
	return c.reversed
}

// assemble puts the architecture checks before the search tree.
func assemble(t *table, rules map[uint32]block, fallback block) (block, error) {
	program := block{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: t.audit, SkipTrue: 1},
		bpf.RetConstant{Val: retKillProcess},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
	}
	if t.hasX32 {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32Bit, SkipFalse: 1},
			bpf.RetConstant{Val: retErrno | errENOSYS})
	}
	program = append(program, search(spans(rules, fallback))...)
	if len(program) > maxInstructions {
		return nil, fmt.Errorf("filter has %d instructions, the kernel takes %d", len(program), maxInstructions)
	}
	return program, nil
}

// encode writes the program as an array of struct sock_filter. Both supported
// architectures are little endian.
func encode(program block) ([]byte, error) {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	out := make([]byte, 0, len(raw)*8)
	for _, ins := range raw {
		out = binary.LittleEndian.AppendUint16(out, ins.Op)
		out = append(out, ins.Jt, ins.Jf)
		out = binary.LittleEndian.AppendUint32(out, ins.K)
	}
	return out, nil
}

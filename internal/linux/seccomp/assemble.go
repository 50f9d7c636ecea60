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

// tree is a binary search over spans with the number in the accumulator. The
// kernel runs the filter once for every number when it is installed, to find
// what it may always allow (seccomp_cache_prepare, Linux 5.11), so depth counts
// there as well as on each call.
func tree(s []span) block {
	if len(s) == 1 {
		return s[0].body
	}
	mid := len(s) / 2
	left, right := tree(s[:mid]), tree(s[mid:])
	var head block
	if len(left) <= 255 {
		head = block{bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: s[mid].start, SkipTrue: uint8(len(left))}}
	} else {
		// Conditional jumps reach 255 instructions, plain ones any distance.
		head = block{
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: s[mid].start, SkipFalse: 1},
			bpf.Jump{Skip: uint32(len(left))},
		}
	}
	return slices.Concat(head, left, right)
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
	program = append(program, tree(spans(rules, fallback))...)
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

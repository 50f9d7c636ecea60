package landlock

// File system rights (include/uapi/linux/landlock.h). The first thirteen came
// with ABI 1 (Linux 5.13).
const (
	FSExecute uint64 = 1 << iota
	FSWriteFile
	FSReadFile
	FSReadDir
	FSRemoveDir
	FSRemoveFile
	FSMakeChar
	FSMakeDir
	FSMakeReg
	FSMakeSock
	FSMakeFifo
	FSMakeBlock
	FSMakeSym
	FSRefer    // ABI 2, Linux 5.19
	FSTruncate // ABI 3, Linux 6.2
	FSIoctlDev // ABI 5, Linux 6.10
)

// Network rights, ABI 4 (Linux 6.7).
const (
	NetBindTCP uint64 = 1 << iota
	NetConnectTCP
)

// Scopes, ABI 6 (Linux 6.12).
const (
	ScopeAbstractUnixSocket uint64 = 1 << iota
	ScopeSignal
)

// fileRights are the rights that a rule on something other than a directory may
// carry; with any other the kernel answers EINVAL.
const fileRights = FSExecute | FSWriteFile | FSReadFile | FSTruncate | FSIoctlDev

const (
	readOnlyRights = FSExecute | FSReadFile | FSReadDir
	// Writable places get no execute right and no device nodes.
	readWriteRights = FSWriteFile | FSReadFile | FSReadDir | FSRemoveDir | FSRemoveFile |
		FSMakeDir | FSMakeReg | FSMakeSock | FSMakeFifo | FSMakeSym | FSRefer | FSTruncate
)

// Ruleset is everything that landlock_create_ruleset(2), landlock_add_rule(2)
// and landlock_restrict_self(2) need.
type Ruleset struct {
	// ABI is the version that the bits were masked for. 0: no Landlock, and
	// nothing to do.
	ABI int
	// HandledFS are the rights that are refused unless a rule grants them.
	HandledFS uint64
	// HandledNet are the TCP rights refused altogether, since there are no
	// network rules. Clear it for a program that may use sockets in a network
	// namespace of its own.
	HandledNet uint64
	// Scoped are the reaches out of the domain that are cut.
	Scoped uint64
	// FileMask must be applied to a rule's access when its path is not a
	// directory.
	FileMask uint64
	// Rules grant rights below paths.
	Rules []Rule
}

// Rule grants access at and below a path.
type Rule struct {
	Path   string
	Access uint64
}

// For describes a ruleset under which only the named paths can be reached:
// readOnly for reading and executing, readWrite for everything but executing
// and device nodes. abi comes from [ABI] on the kernel that will enforce it.
// Versions above 7 add rights that are not used, which is what the kernel's
// documentation asks of older programs.
func For(abi int, readOnly, readWrite []string) Ruleset {
	if abi < 1 {
		return Ruleset{}
	}
	r := Ruleset{ABI: abi, HandledFS: knownFS(abi), FileMask: fileRights & knownFS(abi)}
	if abi >= 4 {
		r.HandledNet = NetBindTCP | NetConnectTCP
	}
	if abi >= 6 {
		r.Scoped = ScopeAbstractUnixSocket | ScopeSignal
	}
	for _, path := range readOnly {
		r.Rules = append(r.Rules, Rule{Path: path, Access: readOnlyRights & r.HandledFS})
	}
	for _, path := range readWrite {
		r.Rules = append(r.Rules, Rule{Path: path, Access: readWriteRights & r.HandledFS})
	}
	return r
}

// knownFS returns the file system rights of an ABI.
func knownFS(abi int) uint64 {
	known := FSRefer - 1
	if abi >= 2 {
		known |= FSRefer
	}
	if abi >= 3 {
		known |= FSTruncate
	}
	if abi >= 5 {
		known |= FSIoctlDev
	}
	return known
}

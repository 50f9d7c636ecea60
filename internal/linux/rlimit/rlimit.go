package rlimit

import "slices"

// names is indexed by number (include/uapi/asm-generic/resource.h). Units are
// bytes except: cpu in seconds, nproc, nofile, locks and sigpending in pieces,
// rttime in microseconds, nice and rtprio as priorities; see getrlimit(2).
var names = [...]string{
	"cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile",
	"memlock", "as", "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime",
}

// Number returns the number of a limit named in lower case without RLIMIT_.
func Number(name string) (int, bool) {
	number := slices.Index(names[:], name)
	return number, number >= 0
}

// Name is the reverse of [Number].
func Name(number int) (string, bool) {
	if number < 0 || number >= len(names) {
		return "", false
	}
	return names[number], true
}

// Names returns all names in the order of their numbers.
func Names() []string { return slices.Clone(names[:]) }

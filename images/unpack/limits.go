package unpack

// Limits bound a tree. Each must be positive.
type Limits struct {
	Bytes     int64 // of all files that are written, those that a later layer removes as well
	Entries   int64 // members of all layers
	PathBytes int   // of one member's name or one link's target
	Depth     int   // directories above a member
}

// DefaultLimits fit the largest scientific images known, and a disk.
func DefaultLimits() Limits {
	return Limits{Bytes: 16 << 30, Entries: 500_000, PathBytes: 1024, Depth: 48}
}

// StreamBytes is what a tar of so much may have: each member has a header of
// 512 bytes, up to two more of which name it, and padding.
func (l Limits) StreamBytes() int64 {
	const perMember = 4 << 10
	return l.Bytes + l.Entries*perMember + 1<<20
}

// nameBytes is the longest name of a directory entry (path_resolution(7)).
const nameBytes = 255

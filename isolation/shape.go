package isolation

import "github.com/sandboxd/sandboxd/sandbox"

// Shape is what of the limits is built into a container. The rest can be set
// afterwards.
type Shape struct {
	workspaceBytes, workspaceInodes int64
	processes                       bool
}

// ShapeOf gives the shape that limits ask for.
func ShapeOf(l sandbox.Limits) Shape {
	return Shape{l.WorkspaceBytes, l.WorkspaceInodes, l.Processes > 0}
}

// RoomToMake are the limits under which a container is made: those of the run, but
// with room for the runtime, which works inside them.
func RoomToMake(l sandbox.Limits) sandbox.Limits {
	d := sandbox.DefaultLimits()
	l.MemoryBytes = max(l.MemoryBytes, d.MemoryBytes)
	l.Threads = max(l.Threads, d.Threads)
	return l
}

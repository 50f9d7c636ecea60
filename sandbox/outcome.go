package sandbox

// StopCause says why the keeper ended a run, when it did.
type StopCause string

// The causes for which a run is stopped from outside.
const (
	StopNone     StopCause = ""
	StopWall     StopCause = "wall"
	StopCPU      StopCause = "cpu"
	StopOutput   StopCause = "output"
	StopCanceled StopCause = "canceled"
	StopProtocol StopCause = "protocol" // the guest broke the frame protocol after the program had started
)

// Outcome is what really happened: facts from the kernel, the engine and the
// keeper's clock. Nothing in it is the program's word.
type Outcome struct {
	Started  bool      // untrusted code had begun
	Exited   bool      // the program left by itself with ExitCode
	ExitCode int       // meaningful when Exited
	Signal   int       // the signal that ended the program, 0 when none did
	Lost     bool      // the sandbox ended without saying how the program ended
	Stopped  StopCause // why the keeper ended it, if it did
	OOMKills int64     // processes killed for memory, by the cgroup's own counter
	Usage    Usage
}

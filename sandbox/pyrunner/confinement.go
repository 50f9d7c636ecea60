package pyrunner

// Confinement is what the supervisor applies to the program before untrusted
// code runs. It is the configuration of the supervisor entry; the engine fills
// it from the plan.
type Confinement struct {
	Numbers          map[string]int `json:"numbers"`       // system calls of the guest's architecture
	UID              *int           `json:"uid"`           // of the program, as seen inside; nil where the engine has no ids to give
	GID              *int           `json:"gid"`           //
	Rlimits          []Rlimit       `json:"rlimits"`       //
	Filter           []byte         `json:"filter"`        // seccomp program, raw struct sock_filter
	Landlock         *Landlock      `json:"landlock"`      // nil where the kernel has none
	Workspace        string         `json:"workspace"`     // absolute path inside
	SitePackages     []string       `json:"site_packages"` // added to sys.path
	ThreadStackBytes int64          `json:"thread_stack_bytes"`
	Kill             KillScope      `json:"kill"`
	// Capabilities are the numbers of those that the supervisor keeps. It drops all
	// others, and its bounding set, before it forks the program; nil leaves it what
	// it has.
	Capabilities []int `json:"capabilities"`
	// Output is the descriptor that frames are written to, where the stream takes
	// none: a pipe for each direction. Nil where it takes both.
	Output *int `json:"output"`
}

// KillScope says what the supervisor may kill at the end.
type KillScope string

// The kill scopes.
const (
	KillNamespace   KillScope = "namespace"   // every process it can see: it is PID 1
	KillDescendants KillScope = "descendants" // its own children, as their subreaper
)

// Rlimit is one resource limit: its number, soft and hard value.
type Rlimit [3]int64

// Landlock is a ruleset for the program (landlock(7)).
type Landlock struct {
	ABI        int            `json:"abi"`
	HandledFS  uint64         `json:"handled_fs"`
	HandledNet uint64         `json:"handled_net"`
	Scoped     uint64         `json:"scoped"`
	FileMask   uint64         `json:"file_mask"` // rights that make sense for what is no directory
	Rules      []LandlockRule `json:"rules"`
}

// LandlockRule allows access to what is beneath a path.
type LandlockRule struct {
	Path   string `json:"path"`
	Access uint64 `json:"access"`
}

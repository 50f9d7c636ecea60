package pyrunner

import (
	"embed"
	"fmt"
	"io"
	"strings"
)

// Boot is the first frame to a fresh interpreter: the guest's own source text
// and how this engine confines. The engine fills Config; the guest module Entry
// understands it.
type Boot struct {
	Modules []Module `json:"modules"`
	Entry   string   `json:"entry"` // module whose main(stream, config) is called
	Config  any      `json:"config"`
}

// Module is one guest module.
type Module struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// The guest's entry modules.
const (
	EntrySupervisor = "supervisor" // one sandbox: container and process engines
	EntryZygote     = "zygote"     // forks supervisors: native engine
)

const bootstrap = "bootstrap"

//go:embed guest/*.py
var guestFiles embed.FS

// Bootstrap is the text for the interpreter's -c option. It takes two
// descriptors as arguments, which may be the same: the one it reads the boot
// frame from and the one it hands to the entry module.
func Bootstrap() string {
	return mustRead(bootstrap)
}

// ZygoteBootstrap is Bootstrap for an interpreter that will be forked from. It
// sees to where objects lie before it makes any that it keeps.
func ZygoteBootstrap() string {
	return fmt.Sprintf(`import sys
arenas = type(sys)("sandboxd_guest.arenas")
exec(compile(%q, "sandboxd_guest/arenas.py", "exec"), vars(arenas))
arenas.gather()
sys.modules["sandboxd_guest.arenas"] = arenas
`, mustRead("arenas")) + Bootstrap()
}

// WriteBoot sends the boot frame.
func WriteBoot(w io.Writer, entry string, config any) error {
	boot := &Boot{Entry: entry, Config: config}
	entries, err := guestFiles.ReadDir("guest")
	if err != nil {
		return fmt.Errorf("read embedded guest: %w", err)
	}
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".py"); name != bootstrap {
			boot.Modules = append(boot.Modules, Module{Name: name, Source: mustRead(name)})
		}
	}
	return writeFrame(w, &frame{Type: FrameBoot, Boot: boot}, MaxFrameToGuest)
}

// WriteLimits sets the resource limits of a run whose sandbox was made before
// they were known, in place of those of its Confinement.
func WriteLimits(w io.Writer, limits []Rlimit) error {
	return writeFrame(w, &frame{Type: FrameLimits, Rlimits: limits}, MaxFrameToGuest)
}

func mustRead(name string) string {
	b, err := guestFiles.ReadFile("guest/" + name + ".py")
	if err != nil {
		panic(fmt.Sprintf("guest module %s is not embedded: %v", name, err))
	}
	return strings.TrimPrefix(string(b), "\ufeff")
}

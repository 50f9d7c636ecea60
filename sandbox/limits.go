package sandbox

// Limits caps one run. In a Spec zero means "the default"; in a plan every
// field that applies is set.
//
// Each field is enforced by the engine or declared unsupported by it (see
// isolation.Support); a limit that the caller named and the engine cannot
// enforce refuses the run.
type Limits struct {
	WallMillis      int64 `json:"wall_ms,omitempty" minimum:"0" doc:"Wall-clock time from the start of the program, in milliseconds"`
	CPUMillis       int64 `json:"cpu_ms,omitempty" minimum:"0" doc:"CPU time of the whole sandbox, children included, in milliseconds"`
	MemoryBytes     int64 `json:"memory_bytes,omitempty" minimum:"0" doc:"Memory of the whole sandbox, its temporary files included, without swap, in bytes"`
	Processes       int64 `json:"processes,omitempty" minimum:"0" doc:"Child processes the program may have at once; none by default. With any, children and threads share one budget of threads plus processes"`
	Threads         int64 `json:"threads,omitempty" minimum:"0" doc:"Threads of the program, the first one included"`
	OpenFiles       int64 `json:"open_files,omitempty" minimum:"0" doc:"Open descriptors of a process"`
	FileBytes       int64 `json:"file_bytes,omitempty" minimum:"0" doc:"Size of the largest file that may be written, in bytes"`
	WorkspaceBytes  int64 `json:"workspace_bytes,omitempty" minimum:"0" doc:"Size of the workspace, and of each of /tmp and /dev/shm, in bytes"`
	WorkspaceInodes int64 `json:"workspace_inodes,omitempty" minimum:"0" doc:"Files in the workspace, and in each of /tmp and /dev/shm"`
	OutputBytes     int64 `json:"output_bytes,omitempty" minimum:"0" doc:"Bytes kept of each output stream (head and tail); the rest is drained and counted"`
	OutputStopBytes int64 `json:"output_stop_bytes,omitempty" minimum:"0" doc:"Stop the run when it has written more than this many bytes in all; never by default"`
	ArtifactBytes   int64 `json:"artifact_bytes,omitempty" minimum:"0" doc:"Bytes collected from the workspace in all"`
	ArtifactCount   int64 `json:"artifact_count,omitempty" minimum:"0" doc:"Files collected from the workspace"`
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// DefaultLimits are those of a run that names none.
func DefaultLimits() Limits {
	return Limits{
		WallMillis:      15_000,
		CPUMillis:       10_000,
		MemoryBytes:     256 * mib,
		Processes:       0,
		Threads:         32,
		OpenFiles:       64,
		FileBytes:       16 * mib,
		WorkspaceBytes:  16 * mib,
		WorkspaceInodes: 4096,
		OutputBytes:     1 * mib,
		ArtifactBytes:   1 * mib,
		ArtifactCount:   64,
	}
}

// DefaultCeilings are the largest limits a request may name unless the
// configuration says otherwise.
func DefaultCeilings() Limits {
	return Limits{
		WallMillis:      600_000,
		CPUMillis:       300_000,
		MemoryBytes:     4096 * mib,
		Processes:       64,
		Threads:         512,
		OpenFiles:       1024,
		FileBytes:       1024 * mib,
		WorkspaceBytes:  1024 * mib,
		WorkspaceInodes: 262_144,
		OutputBytes:     4 * mib,
		OutputStopBytes: 1 << 40,
		ArtifactBytes:   4 * mib,
		ArtifactCount:   1024,
	}
}

// LimitField gives one limit by its wire name.
type LimitField struct {
	Name  string // as in JSON: "memory_bytes"
	Value *int64
	Floor int64 // the smallest value that makes sense, when one is named
}

// Fields lists the limits in wire order, each with a pointer into l.
func (l *Limits) Fields() []LimitField {
	return []LimitField{
		{"wall_ms", &l.WallMillis, 1},
		{"cpu_ms", &l.CPUMillis, 1},
		{"memory_bytes", &l.MemoryBytes, 32 * mib},
		{"processes", &l.Processes, 0},
		{"threads", &l.Threads, 1},
		{"open_files", &l.OpenFiles, 8},
		{"file_bytes", &l.FileBytes, 4 * kib},
		{"workspace_bytes", &l.WorkspaceBytes, 64 * kib},
		{"workspace_inodes", &l.WorkspaceInodes, 16},
		{"output_bytes", &l.OutputBytes, 1},
		{"output_stop_bytes", &l.OutputStopBytes, 1},
		{"artifact_bytes", &l.ArtifactBytes, 1},
		{"artifact_count", &l.ArtifactCount, 1},
	}
}

// Plan fills what l leaves at zero from defaults and checks what it names: a
// value below its floor or over its ceiling is an invalid Error with the
// field's name. A default over the ceiling is lowered to it, because the caller
// did not ask for it. The names that l set itself come back in wire order.
func (l Limits) Plan(defaults, ceilings Limits) (planned Limits, named []string, err error) {
	planned = l
	def, ceil := defaults.Fields(), ceilings.Fields()
	for i, f := range planned.Fields() {
		limit := *ceil[i].Value
		switch v := *f.Value; {
		case v < 0:
			return Limits{}, nil, Errorf(KindInvalid, "admit", "limits."+f.Name, "%d is negative", v)
		case v == 0:
			*f.Value = *def[i].Value
			if limit > 0 {
				*f.Value = min(*f.Value, limit)
			}
			continue
		case v < f.Floor:
			return Limits{}, nil, Errorf(KindInvalid, "admit", "limits."+f.Name, "%d is below the least useful value %d", v, f.Floor)
		case limit > 0 && v > limit:
			return Limits{}, nil, Errorf(KindInvalid, "admit", "limits."+f.Name, "%d is over the ceiling %d", v, limit)
		}
		named = append(named, f.Name)
	}
	return planned, named, nil
}

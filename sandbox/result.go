package sandbox

// Result is what the caller gets. The fields up to TotalCount keep the names
// and types of the runner that this product grew out of.
type Result struct {
	Passed           bool     `json:"passed" doc:"True only when the verdict is passed"`
	Stdout           string   `json:"stdout" doc:"Standard output, at most limits.output_bytes of it; bytes that are no UTF-8 are replaced"`
	Stderr           string   `json:"stderr" doc:"Standard error, likewise; it ends with the traceback"`
	FailedAssertions []string `json:"failed_assertions" doc:"Message of each failed assertion"`
	ExceptionType    string   `json:"exception_type" doc:"Type of the exception that ended the run"`
	ExceptionMessage string   `json:"exception_message"`
	ElapsedSeconds   float64  `json:"elapsed_seconds" doc:"Wall time of the program"`
	PassedCount      int      `json:"passed_count"`
	TotalCount       int      `json:"total_count"`

	ID              string            `json:"id"`
	Verdict         Verdict           `json:"verdict" enum:"passed,failed,raised,exited,wall_limit,cpu_limit,memory_limit,output_limit,crashed,refused,canceled"`
	Reason          string            `json:"reason,omitempty" doc:"With crashed: signal or protocol"`
	Phase           Phase             `json:"phase,omitempty" enum:"solution,tests,program" doc:"Whose text raised the exception"`
	Failures        []Failure         `json:"failures" doc:"Failed assertions in detail; bounded, the counts are exact"`
	Traceback       string            `json:"traceback,omitempty"`
	Summary         string            `json:"summary" doc:"A short account for a person or a model"`
	ExitCode        *int              `json:"exit_code" doc:"Exit code, when the program left by itself"`
	Signal          int               `json:"signal,omitempty" doc:"Signal that ended the program"`
	StdoutTruncated bool              `json:"stdout_truncated"`
	StderrTruncated bool              `json:"stderr_truncated"`
	Artifacts       []Artifact        `json:"artifacts" doc:"Files collected from the workspace"`
	ArtifactsCut    bool              `json:"artifacts_truncated" doc:"Some files were left out for artifact_bytes or artifact_count"`
	Usage           Usage             `json:"usage"`
	Limits          Limits            `json:"limits" doc:"The limits that applied"`
	Unenforced      []string          `json:"unenforced" doc:"Default limits that this engine cannot enforce"`
	Integrity       Integrity         `json:"integrity" enum:"shared,split"`
	IntegrityNotes  []string          `json:"integrity_notes" doc:"What the integrity mode does not cover in this run"`
	Engine          string            `json:"engine"`
	Image           string            `json:"image" doc:"Name and digest of the image"`
	Interpreter     string            `json:"interpreter" doc:"The Python that ran it"`
	Layers          []LayerReport     `json:"layers" doc:"Isolation layers as they held for this run"`
	Owner           uint32            `json:"owner" doc:"User id of the caller, from the socket's peer credentials"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// Artifact is a file of the workspace after the run.
type Artifact struct {
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	Content []byte `json:"content" doc:"The file's bytes, as base64"`
}

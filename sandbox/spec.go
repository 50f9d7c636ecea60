package sandbox

// Spec is what a caller asks for, as sent. Which fields are set decides the
// mode: Solution and Tests, or Program.
type Spec struct {
	Solution *string `json:"solution,omitempty" doc:"Source of the module under test; may be empty"`
	Tests    *string `json:"tests,omitempty" doc:"Source of the tests, run with the solution's public names; may be empty"`
	Program  *string `json:"program,omitempty" doc:"Source of a script to run as __main__, instead of solution and tests"`

	Stdin   string   `json:"stdin,omitempty" doc:"Standard input, as text"`
	Args    []string `json:"args,omitempty" maxItems:"256" doc:"Arguments of the script, without its own name"`
	Files   []File   `json:"files,omitempty" maxItems:"1024" doc:"Files written into the workspace before the run"`
	Collect []string `json:"collect,omitempty" maxItems:"64" doc:"Patterns of workspace files to return, as of fnmatch; ** matches across directories"`

	Limits        Limits            `json:"limits,omitzero" doc:"Caps on this run; what is absent takes its default"`
	Engine        string            `json:"engine,omitempty" maxLength:"64" doc:"Name of the engine; auto by default"`
	Image         string            `json:"image,omitempty" maxLength:"256" doc:"Name of the image; host by default"`
	Integrity     Integrity         `json:"integrity,omitempty" enum:"shared,split" doc:"How the verdict is protected from the solution"`
	RequireLayers []Layer           `json:"require_layers,omitempty" maxItems:"64" doc:"Layers that must hold beside those required by configuration"`
	FailFast      bool              `json:"fail_fast,omitempty" doc:"Stop at the first failed assertion"`
	Labels        map[string]string `json:"labels,omitempty" doc:"Free labels, returned with the result"`
}

// Integrity says how the verdict is protected from the solution.
type Integrity string

// The integrity modes.
const (
	IntegrityShared Integrity = "shared" // one interpreter for solution and tests; best effort
	IntegritySplit  Integrity = "split"  // a judge process of its own
)

// File is a file of the workspace, by a relative path.
type File struct {
	Path     string   `json:"path" minLength:"1" maxLength:"1024" doc:"Path relative to the workspace, with / between names"`
	Content  string   `json:"content" doc:"The content, in the given encoding"`
	Encoding Encoding `json:"encoding,omitempty" enum:"utf-8,base64" doc:"utf-8 by default"`
	Mode     string   `json:"mode,omitempty" enum:"0644,0755,0600,0444" doc:"Permission bits in octal; 0644 by default"`
}

// Encoding says how Content holds bytes.
type Encoding string

// The encodings of File.Content.
const (
	EncodingUTF8   Encoding = "utf-8"
	EncodingBase64 Encoding = "base64"
)

// Mode is what kind of run a Spec asks for.
type Mode string

// The modes of a run.
const (
	ModeTests  Mode = "tests"
	ModeScript Mode = "script"
)

// Mode tells which kind of run s asks for, or an invalid Error.
func (s *Spec) Mode() (Mode, error) {
	tests := s.Solution != nil || s.Tests != nil
	switch {
	case tests && s.Program != nil:
		return "", Errorf(KindInvalid, "admit", "program", "program cannot be given together with solution or tests")
	case tests:
		return ModeTests, nil
	case s.Program != nil:
		return ModeScript, nil
	}
	return "", Errorf(KindInvalid, "admit", "solution", "nothing to run: give solution and tests, or program")
}

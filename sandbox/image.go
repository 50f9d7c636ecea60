package sandbox

import (
	"slices"
	"time"
)

// HostImage is the name of the machine's own Python as an image. It is not stored.
const HostImage = "host"

// Image is what is known of an image.
type Image struct {
	Digest   string    `json:"digest" doc:"Of the tree as it lies on the disk; a registry has another one for the same image"`
	Names    []string  `json:"names,omitempty"`
	Origin   string    `json:"origin" doc:"Where it came from, for people"`
	Arch     string    `json:"arch"`
	Created  time.Time `json:"created,omitzero" doc:"When it was imported"`
	LastUsed time.Time `json:"last_used,omitzero"`
	Bytes    int64     `json:"bytes" doc:"Of its files; 0 of the machine's own"`
	Entries  int64     `json:"entries" doc:"Files, directories and links; 0 of the machine's own"`
	InUse    int       `json:"in_use" doc:"Runs and engines that hold it now; it cannot be removed meanwhile"`

	PythonVersion string   `json:"python_version"`
	Interpreter   string   `json:"interpreter" doc:"Path in the image"`
	Stdlib        string   `json:"stdlib"`
	Ctypes        string   `json:"ctypes,omitempty"`
	SitePackages  []string `json:"site_packages,omitempty"`
	Preload       []string `json:"preload,omitempty" doc:"Modules that it has, of those that engines keep an interpreter ready for"`
}

// IsHost tells whether it is the machine's own.
func (i *Image) IsHost() bool { return slices.Contains(i.Names, HostImage) }

// Name is the first of its names, its digest where it has none.
func (i *Image) Name() string {
	if len(i.Names) > 0 {
		return i.Names[0]
	}
	return i.Digest
}

// ImageRequest is what a caller asks the daemon to bring in.
type ImageRequest struct {
	Source    ImageSource `json:"source" enum:"registry,docker,build" doc:"A registry, the daemon's Docker Engine, or a build by that Engine"`
	Reference string      `json:"reference,omitempty" maxLength:"512" doc:"Of an image in a registry (HOST/NAME:TAG or HOST/NAME@sha256:…) or in the Engine (also an ID)"`
	Name      string      `json:"name,omitempty" maxLength:"128" doc:"To give to the image; it is taken from another one that has it"`

	Base         string   `json:"base,omitempty" maxLength:"512" doc:"Of a build: the Engine's image to build on; that of Dockerfile.python by default"`
	Requirements []string `json:"requirements,omitempty" maxItems:"100" doc:"Of a build: packages with versions, as pip takes them; they need the network"`
	Network      bool     `json:"network,omitempty" doc:"The build may use the Engine's network"`
}

// ImageSource is a place that the daemon brings images in from by itself.
type ImageSource string

// The sources of images.
const (
	ImageRegistry ImageSource = "registry"
	ImageDocker   ImageSource = "docker"
	ImageBuild    ImageSource = "build"
)

// ImageProgress tells how far the bringing in of an image is.
type ImageProgress struct {
	Phase      string `json:"phase" enum:"build,fetch,unpack,check,sync" doc:"In this order"`
	DoneBytes  int64  `json:"done_bytes,omitempty" doc:"Read in this phase, as stored at the source"`
	TotalBytes int64  `json:"total_bytes,omitempty" doc:"To be read in this phase; 0 where it is not known"`
	Step       int    `json:"step,omitempty" doc:"Of a build, from 1"`
	Steps      int    `json:"steps,omitempty" doc:"Of a build, in all"`
	Text       string `json:"text,omitempty" doc:"Of a build: its instruction when a step begins, else a line of output"`
}

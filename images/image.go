package images

// Image is a file tree and what runs in it. It says what to mount; everything is
// to be mounted read-only, nosuid and nodev, on an empty root, in the order:
// Dirs, Binds (parents come before children), Symlinks, Files. The directories
// above a path are to be made where they are missing.
type Image struct {
	// Name is "host" for the host image.
	Name string
	// Digest identifies the content: "sha256:" and hexadecimal digits.
	Digest string
	// PythonVersion is the interpreter's own, such as "3.11.2".
	PythonVersion string
	// Interpreter is the program's path inside the image.
	Interpreter string
	// Stdlib and SitePackages are directories inside the image. Files named *.pth
	// in SitePackages run code at start unless the interpreter is given -S.
	Stdlib       string
	SitePackages []string
	// Preload are the modules, of those that an image store was told to look for,
	// that are in SitePackages. Of the host image nobody has looked for any.
	Preload []string

	// Dirs are empty directories to make.
	Dirs     []string
	Binds    []Bind
	Symlinks []Symlink
	Files    []File
	// Missing lists libraries that extension modules need and that were not found.
	// Importing these modules fails in the image as it does on the host.
	Missing []Missing
}

// Bind puts a host file or directory into the image.
type Bind struct {
	// Source is a host path without symbolic links, Target a path in the image.
	Source, Target string
	// Dir says that Source is a directory.
	Dir bool
}

// Symlink is a symbolic link at Path in the image.
type Symlink struct {
	Target, Path string
}

// File is a made file.
type File struct {
	Path string
	Mode uint32 // permission bits
	Data []byte
}

// Missing is a library that Object names and that the search did not find, or an
// object that could not be read.
type Missing struct {
	Object, Library string
	Reason          string
}

// Package sandboxd holds Dockerfile.python, by which the daemon builds images: it
// lies where people look for it, and a package can only embed what lies below.
package sandboxd

import _ "embed"

// DockerfilePython is the text of Dockerfile.python.
//
//go:embed Dockerfile.python
var DockerfilePython string

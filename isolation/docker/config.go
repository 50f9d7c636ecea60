package docker

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"

	"github.com/sandboxd/sandboxd/images"
)

// Name is the engine's name.
const Name = "docker"

// DefaultHost is where a Docker Engine listens on its own machine.
const DefaultHost = "unix:///var/run/docker.sock"

// Config is what the engine needs. Host, TLS, Runtime, Images, Ready and one of
// Image and DockerImage may be left out.
type Config struct {
	Host    string // unix:///PATH or tcp://HOST:PORT; DefaultHost when empty
	TLS     TLS    // of a host that is reached by tcp
	Runtime string // one that the Engine is configured with; its default when empty

	// Image is the default image, which is given to the Engine once.
	Image *images.Image
	// DockerImage is the default image instead, by a reference that the Engine
	// knows. It is looked up once: what the name means later is of no account.
	DockerImage string
	// Images are where other images are found; nil where there are none.
	Images images.Source

	Arch      string // GOARCH of the images' interpreters
	Log       *slog.Logger
	Owner     string // names this daemon among all that use the Engine; [a-f0-9], 8 to 64
	UIDBase   uint32 // first host id; blocks of isolation.IDsPerSandbox from there on
	Sandboxes uint32 // live at once, at most, ready ones included
	Ready     int    // sandboxes kept ready at most
}

// TLS names files with certificates: whom to believe, and who the daemon is.
type TLS struct{ CA, Cert, Key string }

func (t TLS) isZero() bool { return t == TLS{} }

func (c *Config) validate() error {
	var errs []error
	require := func(ok bool, name string) {
		if !ok {
			errs = append(errs, fmt.Errorf("docker engine: %s is missing", name))
		}
	}
	require(c.Arch != "", "architecture")
	require(c.Log != nil, "logger")
	require(c.Sandboxes > 0, "number of sandboxes")
	require(len(c.Owner) >= 8 && len(c.Owner) <= 64, "owner")
	require((c.Image == nil) != (c.DockerImage == ""), "one image, and one only,")
	if c.UIDBase < 100_000 || c.UIDBase > maxUID { // below are the machine's own users
		errs = append(errs, fmt.Errorf("docker engine: uid_base %d is not between 100000 and %d", c.UIDBase, maxUID))
	}
	return errors.Join(append(errs, CheckHost(c.Host, c.TLS))...)
}

// maxUID is the most that the Engine takes for a user.
const maxUID = 1<<31 - 1

// CheckHost tells what is wrong with an address. Who reaches an Engine's socket is
// root on its machine, so one that is reached over a network has to know whom it
// serves, and the daemon whom it speaks to.
func CheckHost(host string, t TLS) error {
	if host == "" {
		host = DefaultHost
	}
	u, err := url.Parse(host)
	if err != nil {
		return fmt.Errorf("docker engine: host: %w", err)
	}
	switch u.Scheme {
	case "unix":
		if !filepath.IsAbs(u.Path) || u.Host != "" {
			return fmt.Errorf("docker engine: host %q: the socket's path is not absolute", host)
		}
		if !t.isZero() {
			return fmt.Errorf("docker engine: host %q is a socket of this machine: leave tls_* out", host)
		}
	case "tcp":
		if u.Port() == "" || u.Hostname() == "" || u.Path != "" {
			return fmt.Errorf("docker engine: host %q: want tcp://HOST:PORT", host)
		}
		if t.CA == "" || t.Cert == "" || t.Key == "" {
			return fmt.Errorf("docker engine: host %q is reached over a network: tls_ca, tls_cert and tls_key are required", host)
		}
	default:
		return fmt.Errorf("docker engine: host %q: want unix:///PATH or tcp://HOST:PORT", host)
	}
	return nil
}

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sandboxd/sandboxd/images"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/docker"
)

// dockerSection is [engine.docker]. Without the section there is no such engine:
// who may use a Docker Engine is root on its machine, so nobody does unasked.
type dockerSection struct {
	Host    string `toml:"host"`     // unix:///PATH or tcp://HOST:PORT
	TLSCA   string `toml:"tls_ca"`   // files, for a host that is reached by tcp
	TLSCert string `toml:"tls_cert"` //
	TLSKey  string `toml:"tls_key"`  //
	Runtime string `toml:"runtime"`  // one of the Docker Engine's; its default when left out
	Image   string `toml:"image"`    // the default image, by a name that the Docker Engine knows
	UIDBase uint32 `toml:"uid_base"` // first host id; not used where the Docker Engine remaps users
	Ready   int    `toml:"ready"`    // sandboxes kept ready, at most, once the engine is used
	asked   bool
}

func newDockerSection(h host, raw map[string]any) (dockerSection, error) {
	s := dockerSection{
		Host: docker.DefaultHost, UIDBase: h.ownership().uidBase + idsPerDaemon*7/8, Ready: usualReadyContainers, asked: raw != nil,
	}
	if raw == nil {
		return s, nil
	}
	if err := decode(raw, &s); err != nil {
		return s, err
	}
	errs := []error{docker.CheckHost(s.Host, s.tls())}
	if s.Ready < 0 || s.Ready > mostReady {
		errs = append(errs, fmt.Errorf("ready: %d is not between 0 and %d", s.Ready, mostReady))
	} else if err := checkIDs(s.UIDBase, isolation.IDsPerSandbox*s.sandboxes(h)); err != nil {
		errs = append(errs, fmt.Errorf("uid_base: %w", err))
	}
	return s, errors.Join(errs...)
}

func (s *dockerSection) tls() docker.TLS {
	return docker.TLS{CA: s.TLSCA, Cert: s.TLSCert, Key: s.TLSKey}
}

// sandboxes is how many may exist at once.
func (s *dockerSection) sandboxes(h host) uint32 { return h.sandboxes + uint32(s.Ready) } //nolint:gosec // as checked

func makeDocker(ctx context.Context, h host, raw map[string]any) (isolation.Engine, error) {
	s, err := newDockerSection(h, raw)
	if err != nil || !s.asked {
		return nil, err
	}
	cfg := docker.Config{
		Host: s.Host, TLS: s.tls(), Runtime: s.Runtime, DockerImage: s.Image,
		Images: h.images, Arch: runtime.GOARCH, Log: h.log, Owner: h.dockerOwner(),
		UIDBase: s.UIDBase, Sandboxes: s.sandboxes(h), Ready: s.Ready,
	}
	if s.Image == "" {
		if cfg.Image, err = h.dockerImage(ctx); err != nil {
			return nil, err
		}
	}
	return docker.New(cfg)
}

// dockerImage is the stored image that runs get which name none. Where there is
// none it is the machine's own, of which the probe will say that it cannot be had,
// and what to do.
func (h host) dockerImage(ctx context.Context) (*images.Image, error) {
	if h.images != nil && h.defaultImage != "" {
		use, err := h.images.Acquire(h.defaultImage) // for as long as the daemon lives
		if err == nil {
			return use.Image, nil
		}
		h.log.LogAttrs(ctx, slog.LevelWarn, "engine docker has no default image", slog.String("image", h.defaultImage), slog.Any("err", err))
	}
	return images.Host(ctx, images.HostConfig{})
}

// dockerOwner is this daemon's name among those that use a Docker Engine. Daemons of
// several machines may use one, and have the same state directory there.
func (h host) dockerOwner() string {
	name, _ := os.Hostname()
	machine, _ := os.ReadFile("/etc/machine-id") // machine-id(5); where there is none, the name has to do
	sum := sha256.Sum256([]byte(strings.Join([]string{filepath.Clean(h.stateDir), name, strings.TrimSpace(string(machine))}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

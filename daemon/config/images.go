package config

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxd/sandboxd/daemon/catalog"
)

// Images says where images are kept, which of them runs may name, and who may
// manage them.
type Images struct {
	Dir     string `toml:"dir"`     // images below state_dir when empty
	Default string `toml:"default"` // of runs that name none; the engine's own when empty
	// Allowed unset lets runs name every image that there is: whoever may bring one
	// in is trusted with that. Set, it is the list, and an empty one leaves the
	// default alone.
	Allowed *[]string `toml:"allowed,omitempty"`

	ManagerUIDs []uint32 `toml:"manager_uids"` // beside root and the daemon's own user
	ManagerGIDs []uint32 `toml:"manager_gids"` // primary groups

	ImportBytes   int64 `toml:"import_bytes"`   // of one image's files
	ImportEntries int64 `toml:"import_entries"` // of one image's layers
	ImportMillis  int64 `toml:"import_ms"`      // for one import, the client's sending included
	StoreBytes    int64 `toml:"store_bytes"`    // of all images; 0 leaves it to the disk
	UnusedHours   int64 `toml:"unused_hours"`   // until an image that nobody uses is garbage; 0 is never

	Docker             Docker   `toml:"docker"`
	InsecureRegistries []string `toml:"insecure_registries"` // HOST or HOST:PORT that may be spoken to by HTTP
}

// Docker is the Docker Engine that images are taken from and built by.
type Docker struct {
	Host    string `toml:"host"` // unix:///PATH or tcp://HOST:PORT; the local one when empty
	TLSCA   string `toml:"tls_ca"`
	TLSCert string `toml:"tls_cert"`
	TLSKey  string `toml:"tls_key"`
}

const (
	hour        = int64(time.Hour / time.Millisecond)
	mostUnused  = 24 * 365 * 100 // hours that fit a duration
	usualImport = hour / 2
)

// defaultImages fit the largest scientific images known.
func defaultImages() Images {
	return Images{
		ManagerUIDs: []uint32{}, ManagerGIDs: []uint32{}, InsecureRegistries: []string{},
		ImportBytes: 16 << 30, ImportEntries: 500_000, ImportMillis: usualImport, StoreBytes: 64 << 30,
	}
}

func (i *Images) check(bad func(key, format string, args ...any)) {
	if i.Dir != "" && !filepath.IsAbs(i.Dir) {
		bad("images.dir", "%q is not an absolute path", i.Dir)
	}
	for key, n := range map[string]int64{"import_bytes": i.ImportBytes, "import_entries": i.ImportEntries, "import_ms": i.ImportMillis} {
		if n < 1 {
			bad("images."+key, "%d is not at least 1", n)
		}
	}
	if i.ImportMillis > 24*hour {
		bad("images.import_ms", "%d is more than a day", i.ImportMillis)
	}
	if i.StoreBytes < 0 {
		bad("images.store_bytes", "%d is negative", i.StoreBytes)
	}
	if i.UnusedHours < 0 || i.UnusedHours > mostUnused {
		bad("images.unused_hours", "%d is not between 0 and %d", i.UnusedHours, mostUnused)
	}
	for _, p := range i.allowed() {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			bad("images.allowed", "%q is no pattern of names", p)
		}
	}
	for _, host := range i.InsecureRegistries {
		if host == "" || strings.ContainsAny(host, "/ ") {
			bad("images.insecure_registries", "%q is neither HOST nor HOST:PORT", host)
		}
	}
}

func (i *Images) allowed() []string {
	if i.Allowed == nil {
		return nil
	}
	return append([]string{}, *i.Allowed...)
}

// ImagesDir is where images are kept.
func (c *Config) ImagesDir() string {
	if c.Images.Dir != "" {
		return c.Images.Dir
	}
	return filepath.Join(c.StateDir, "images")
}

// Catalog is the part that daemon/catalog obeys.
func (c *Config) Catalog() catalog.Config {
	i := &c.Images
	own := os.Geteuid()
	return catalog.Config{
		Default: i.Default, Allowed: i.allowed(),
		ManagerUIDs: append(slices.Clone(i.ManagerUIDs), uint32(own)), //nolint:gosec // a user id
		ManagerGIDs: slices.Clone(i.ManagerGIDs),
		ImportTime:  time.Duration(i.ImportMillis) * time.Millisecond,
		Unused:      time.Duration(i.UnusedHours) * time.Hour, Bytes: i.StoreBytes,
	}
}

package main

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

// nameable is what can be an image's name: what the daemon holds names against.
var nameable = regexp.MustCompile(`^[a-z0-9][a-z0-9._/:-]{0,127}$`) //nolint:gochecknoglobals // a constant

func newImagesPull(a *app) *cobra.Command {
	var name string
	var quiet, docker bool
	cmd := &cobra.Command{
		Use:   "pull REFERENCE",
		Short: "Have the daemon fetch an image from a registry, or from its Docker Engine",
		Long: "Fetches an image from a registry: HOST/NAME:TAG or HOST/NAME@sha256:…. It gets\n" +
			"the reference for a name, as far as that can be one, unless --name says\n" +
			"otherwise. The daemon fetches it as nobody in particular. With --docker it takes\n" +
			"an image of the Docker Engine of its configuration, by name or ID.",
		Example: "  sandboxctl images pull registry.example/python:3.12 --name py312",
		Args:    cobra.ExactArgs(1),
	}
	addSourceFlags(cmd, &name, &quiet)
	cmd.Flags().BoolVar(&docker, "docker", false, "from the daemon's Docker Engine")
	cmd.RunE = a.do(func(ctx context.Context, c *apiclient.Client, args []string) error {
		from := sandbox.ImageRegistry
		if docker {
			from = sandbox.ImageDocker
		}
		if name == "" && !strings.HasPrefix(args[0], "sha256:") && nameable.MatchString(args[0]) {
			name = args[0]
		}
		return a.bringIn(ctx, c, sandbox.ImageRequest{Source: from, Reference: args[0], Name: name}, quiet)
	})
	return cmd
}

func addSourceFlags(cmd *cobra.Command, name *string, quiet *bool) {
	cmd.Flags().StringVar(name, "name", "", "name to give to the image; it is taken from another one that has it")
	cmd.Flags().BoolVarP(quiet, "quiet", "q", false, "no progress; print only the digest")
}

func newImagesBuild(a *app) *cobra.Command {
	r := sandbox.ImageRequest{Source: sandbox.ImageBuild}
	var quiet bool
	cmd := &cobra.Command{
		Use:   "build [REQUIREMENT...]",
		Short: "Have the daemon's Docker Engine build an image with packages",
		Long: "Builds the daemon's own Dockerfile.python on a base with Python, and brings the\n" +
			"image in. A REQUIREMENT is a package with versions, as pip takes it: numpy,\n" +
			"numpy==1.26.4, 'x[extra]>=1,<2'. Packages need --network, and come as wheels\n" +
			"only. Without --network the base must be in the Engine.",
		Example: "  sandboxctl images build --network numpy==1.26.4 --name numpy\n" +
			"  sandboxctl images build --base local/pybase --name base",
		Args: cobra.ArbitraryArgs,
	}
	addSourceFlags(cmd, &r.Name, &quiet)
	cmd.Flags().StringVar(&r.Base, "base", "", "image of the Engine to build on (default: that of Dockerfile.python)")
	cmd.Flags().BoolVar(&r.Network, "network", false, "let the build use the Engine's network")
	cmd.RunE = a.do(func(ctx context.Context, c *apiclient.Client, args []string) error {
		if len(args) > 0 && !r.Network {
			return usagef("packages are fetched: they need --network")
		}
		r.Requirements = args
		return a.bringIn(ctx, c, r, quiet)
	})
	return cmd
}

func newImagesImport(a *app) *cobra.Command {
	var archive apiclient.Archive
	var quiet bool
	cmd := &cobra.Command{
		Use:   "import FILE|DIRECTORY|-",
		Short: "Send an image to the daemon: an OCI layout, an archive of docker save, or a root file system",
		Long: "Sends an image that this user can read. A FILE is a tar, which gzip or zstd may\n" +
			"have compressed: of an OCI layout, of what docker save writes, or of a root file\n" +
			"system. A DIRECTORY is an OCI layout. - is a tar on standard input.",
		Example: "  sandboxctl images import base.tar --name base\n" +
			"  docker save my/python:3.12 | sandboxctl images import - --name py312",
		Args: cobra.ExactArgs(1),
	}
	addSourceFlags(cmd, &archive.Name, &quiet)
	cmd.Flags().StringVar(&archive.Form, "form", "", "what it is: oci, docker or rootfs (default: told by its content)")
	cmd.Flags().StringVar(&archive.Tag, "tag", "", "which of several images in it")
	cmd.RunE = a.do(func(ctx context.Context, c *apiclient.Client, args []string) error {
		content, bytes, err := a.openArchive(args[0])
		if err != nil {
			return err
		}
		defer content.Close()
		progress := a.progressFor(quiet)
		archive.Content, archive.Bytes = &sent{r: content, total: bytes, tell: progress.show}, bytes
		image, err := c.ImportImage(ctx, archive, progress.show)
		progress.end(err == nil)
		if err != nil {
			return err
		}
		return a.broughtIn(&image, quiet)
	})
	return cmd
}

// openArchive opens what is to be sent and tells its size, 0 where it is not known.
func (a *app) openArchive(path string) (io.ReadCloser, int64, error) {
	if path == stdinName {
		return io.NopCloser(a.in), 0, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, usageError{err}
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		return packed(path), 0, f.Close()
	case info.Mode().IsRegular() && info.Size() == 0:
		err = usagef("%s is empty", path)
	case info.Mode().IsRegular():
		return f, info.Size(), nil
	default: // a pipe
		return f, 0, nil
	}
	return nil, 0, errors.Join(err, f.Close())
}

// packed is a directory as a tar.
func packed(dir string) io.ReadCloser {
	r, w := io.Pipe()
	go func() { // ends when the reader is closed, too
		t := tar.NewWriter(w)
		err := t.AddFS(os.DirFS(dir))
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	return r
}

// sent counts what is sent.
type sent struct {
	r           io.Reader
	done, total int64
	tell        func(sandbox.ImageProgress)
}

func (s *sent) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.done += int64(n)
	s.tell(sandbox.ImageProgress{Phase: "send", DoneBytes: s.done, TotalBytes: s.total})
	return n, err
}

package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/daemon/daemontest"
	"github.com/sandboxd/sandboxd/daemon/tenants"
	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/sandbox"
)

func withImages(t *testing.T, configure func(*config.Config), names ...string) (*daemontest.Daemon, *daemontest.Images) {
	t.Helper()
	images := daemontest.NewImages(names...)
	return daemontest.Start(t, daemontest.Options{Engines: scripted(), Images: images, Configure: configure}), images
}

func tarHeader() http.Header { return http.Header{"Content-Type": {"application/x-tar"}} }

func TestImages_ComeAndGo(t *testing.T) {
	d, images := withImages(t, nil, "team/base:1")
	c := client(t, d)
	var phases []string
	got, err := c.ImportImage(t.Context(), apiclient.Archive{Content: strings.NewReader("content"), Bytes: 7, Name: "new"}, func(p sandbox.ImageProgress) {
		phases = append(phases, p.Phase)
	})
	if err != nil || got.Digest != daemontest.DigestOf("content") || got.Name() != "new" || !got.Allowed {
		t.Fatalf("%+v, %v", got, err)
	}
	if strings.Join(phases, " ") != "unpack unpack check" {
		t.Errorf("progress: %v", phases)
	}
	pulled, err := c.BringInImage(t.Context(), sandbox.ImageRequest{Source: sandbox.ImageRegistry, Reference: "reg/x:1", Name: "pulled"}, nil)
	if err != nil || pulled.Digest != daemontest.DigestOf("reg/x:1") {
		t.Errorf("%+v, %v", pulled, err)
	}
	for _, reference := range []string{"team/base:1", daemontest.DigestOf("team/base:1"), daemontest.DigestOf("team/base:1")[7:20]} {
		if i, err := c.InspectImage(t.Context(), reference); err != nil || i.Name() != "team/base:1" {
			t.Errorf("%s: %+v, %v", reference, i, err)
		}
	}
	list, err := c.ListImages(t.Context())
	if err != nil || len(list) != 4 || !list[0].Default || list[0].Name() != "host" {
		t.Errorf("%+v, %v", list, err)
	}
	text := "#fake print hi"
	for _, reference := range []string{"new", daemontest.DigestOf("content")} {
		res, err := c.Run(t.Context(), sandbox.Spec{Program: &text, Image: reference})
		if err != nil || res.Image != "new "+daemontest.DigestOf("content") || res.Interpreter != "Python 3.12.1 at /usr/local/bin/python3.12" {
			t.Errorf("image %q, interpreter %q, %v", res.Image, res.Interpreter, err)
		}
	}
	for _, reference := range []string{"team/base:1", "new", "pulled"} {
		if err := c.RemoveImage(t.Context(), reference); err != nil {
			t.Errorf("remove %s: %v", reference, err)
		}
	}
	if err := c.RemoveImage(t.Context(), "new"); problemCode(err) != "not_found" {
		t.Errorf("remove again: %v", err)
	}
	if _, now := images.Uses(); now != 0 {
		t.Errorf("%d images are held", now)
	}
}

func problemCode(err error) string {
	if p, ok := errors.AsType[*apiclient.Problem](err); ok {
		return string(p.Code)
	}
	return ""
}

// TestImages_RefusalsBeforeProgress are answers of their own.
func TestImages_RefusalsBeforeProgress(t *testing.T) {
	d, _ := withImages(t, nil, "x")
	json := http.Header{"Content-Type": {"application/json"}}
	for _, c := range []struct {
		title, method, path string
		header              http.Header
		body                string
		status              int
	}{
		{"archive of another type", "POST", "/v1/images/import", json, "{}", 415},
		{"archive of no type", "POST", "/v1/images/import", http.Header{}, "x", 415},
		{"archive too large", "POST", "/v1/images/import", tarHeader(), strings.Repeat("x", 1<<20+1), 422},
		{"unknown form", "POST", "/v1/images/import?form=zip", tarHeader(), "x", 422},
		{"unknown parameter", "POST", "/v1/images/import?path=/etc/passwd", tarHeader(), "x", 422},
		{"archive where a request belongs", "POST", "/v1/images", tarHeader(), "x", 415},
		{"no source", "POST", "/v1/images", json, `{"reference":"x"}`, 422},
		{"unknown source", "POST", "/v1/images", json, `{"source":"file","reference":"/etc/passwd"}`, 422},
		{"unknown field", "POST", "/v1/images", json, `{"source":"registry","path":"/etc/passwd"}`, 422},
		{"not in the registry", "POST", "/v1/images", json, `{"source":"registry","reference":"missing/x"}`, 404},
		{"unknown image", "GET", "/v1/images/nope", nil, "", 404},
		{"unknown image to be removed", "DELETE", "/v1/images/nope", nil, "", 404},
		{"collection of nonsense", "POST", "/v1/images/gc", json, `{"unused_ms":-1}`, 422},
		{"collection of anything", "POST", "/v1/images/gc", json, `{"all":true}`, 422},
	} {
		t.Run(c.title, func(t *testing.T) {
			resp, text := send(t, d, c.method, c.path, c.header, []byte(c.body))
			if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %s %s", resp.StatusCode, resp.Header.Get("Content-Type"), text)
			}
		})
	}
}

// TestImages_RefusalsAfterProgress are the last line.
func TestImages_RefusalsAfterProgress(t *testing.T) {
	d, _ := withImages(t, nil)
	for content, want := range map[string][2]string{
		"hostile": {"invalid", "../etc/passwd: its name leads out"},
		"broken":  {"internal", "the daemon failed; its log says more"},
	} {
		resp, text := post(t, d, "/v1/images/import", tarHeader(), []byte(content))
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		var last struct {
			Problem *apiclient.Problem `json:"problem"`
		}
		err := json.Unmarshal([]byte(lines[len(lines)-1]), &last)
		if resp.StatusCode != 200 || len(lines) != 3 || err != nil || last.Problem == nil {
			t.Fatalf("%d, %v\n%s", resp.StatusCode, err, text)
		}
		if string(last.Problem.Code) != want[0] || !strings.Contains(last.Problem.Detail, want[1]) || strings.Contains(string(text), "secret") {
			t.Errorf("%s", text)
		}
		_, err = client(t, d).ImportImage(t.Context(), apiclient.Archive{Content: strings.NewReader(content)}, nil)
		if problemCode(err) != want[0] {
			t.Errorf("client: %v", err)
		}
	}
	if !strings.Contains(d.Log.String(), "/secret/path is gone") {
		t.Error("the log does not tell what failed")
	}
}

func TestImages_AreManagedByManagers(t *testing.T) {
	d, _ := withImages(t, func(c *config.Config) { c.Images.ManagerUIDs = []uint32{7} }, "x")
	d.BeCaller(tenants.Caller{UID: 4242, GID: 4242})
	stranger := client(t, d)
	if list, err := stranger.ListImages(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("list: %v, %v", list, err)
	}
	if _, err := stranger.InspectImage(t.Context(), "x"); err != nil {
		t.Errorf("inspect: %v", err)
	}
	_, importErr := stranger.ImportImage(t.Context(), apiclient.Archive{Content: strings.NewReader("content")}, nil)
	_, pullErr := stranger.BringInImage(t.Context(), sandbox.ImageRequest{Source: sandbox.ImageRegistry, Reference: "x"}, nil)
	_, collectErr := stranger.CollectImages(t.Context(), apiclient.Garbage{})
	for call, err := range map[string]error{
		"import": importErr, "pull": pullErr, "collect": collectErr, "remove": stranger.RemoveImage(t.Context(), "x"),
	} {
		if problemCode(err) != "denied" || !strings.Contains(err.Error(), "manager_uids") {
			t.Errorf("%s: %v", call, err)
		}
	}
	d.BeCaller(tenants.Caller{UID: 7, GID: 4242})
	if err := client(t, d).RemoveImage(t.Context(), "x"); err != nil {
		t.Errorf("manager: %v", err)
	}
}

// hanging starts an import that does not end by itself, and gives its end.
func hanging(ctx context.Context, t *testing.T, c *apiclient.Client) <-chan error {
	t.Helper()
	begun, ended := make(chan struct{}, 8), make(chan error, 1)
	go func() {
		_, err := c.ImportImage(ctx, apiclient.Archive{Content: strings.NewReader("hang")}, func(sandbox.ImageProgress) { begun <- struct{}{} })
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("it does not begin")
	}
	return ended
}

func storeEnds(t *testing.T, images *daemontest.Images) error {
	t.Helper()
	select {
	case err := <-images.Ended:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the import goes on")
		return nil
	}
}

// TestImages_EndWithTheirClient, whether it leaves while it sends or later.
func TestImages_EndWithTheirClient(t *testing.T) {
	d, images := withImages(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := hanging(ctx, t, client(t, d))
	if _, err := client(t, d).ImportImage(t.Context(), apiclient.Archive{Content: strings.NewReader("content")}, nil); problemCode(err) != "exhausted" {
		t.Errorf("second: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("client: %v", err)
	}
	if err := storeEnds(t, images); sandbox.KindOf(err) != sandbox.KindCanceled {
		t.Errorf("store: %v", err)
	}
	waitFor(t, "the next is let in", func() bool {
		_, err := client(t, d).ImportImage(t.Context(), apiclient.Archive{Content: strings.NewReader("content")}, nil)
		return err == nil
	})
	if err := storeEnds(t, images); err != nil {
		t.Error(err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	<-images.Begun // those before
	<-images.Begun
	go func() {
		_, _ = io.WriteString(w, "the beginning")
		<-images.Begun
		cancel()
	}()
	if _, err := client(t, d).ImportImage(ctx, apiclient.Archive{Content: r}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("client amid its sending: %v", err)
	}
	if err := storeEnds(t, images); sandbox.KindOf(err) != sandbox.KindCanceled {
		t.Errorf("store amid the sending: %v", err)
	}
	if list, err := client(t, d).ListImages(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("beside the machine's own there is not one that was brought in: %v, %v", list, err)
	}
}

// TestImages_EndWithTheDaemon at once: a drain is for runs.
func TestImages_EndWithTheDaemon(t *testing.T) {
	d, images := withImages(t, func(c *config.Config) { c.Shutdown.DrainMillis = 60_000 })
	ended := hanging(t.Context(), t, client(t, d))
	began := time.Now()
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if err := <-ended; problemCode(err) != "unavailable" {
		t.Errorf("client: %v", err)
	}
	if err := storeEnds(t, images); sandbox.KindOf(err) != sandbox.KindCanceled {
		t.Errorf("store: %v", err)
	}
}

func TestImages_Collect(t *testing.T) {
	d, _ := withImages(t, func(c *config.Config) { c.Images.Default = "kept" }, "kept", "a", "b")
	c := client(t, d)
	if got, err := c.CollectImages(t.Context(), apiclient.Garbage{}); err != nil || len(got.Removed) != 0 {
		t.Errorf("as configured: %+v, %v", got, err)
	}
	ms := int64(1)
	got, err := c.CollectImages(t.Context(), apiclient.Garbage{UnusedMillis: &ms})
	if err != nil || len(got.Removed) != 2 || got.FreedBytes != 10<<20 {
		t.Errorf("%+v, %v", got, err)
	}
	text := ""
	if res, err := c.Run(t.Context(), sandbox.Spec{Program: &text}); err != nil || !strings.HasPrefix(res.Image, "kept sha256:") {
		t.Errorf("default: %q, %v", res.Image, err)
	}
}

// TestImages_MissingDefaultIsNotReady: nobody is served something else.
func TestImages_MissingDefaultIsNotReady(t *testing.T) {
	d, _ := withImages(t, func(c *config.Config) { c.Images.Default = "nope" })
	c := client(t, d)
	if err := c.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("health: %v", err)
	}
	text := ""
	if _, err := c.Run(t.Context(), sandbox.Spec{Program: &text}); problemCode(err) != "unavailable" || !strings.Contains(err.Error(), "sandboxctl images") {
		t.Errorf("run: %v", err)
	}
	if _, err := c.Run(t.Context(), sandbox.Spec{Program: &text, Image: "host"}); err != nil {
		t.Errorf("run in another: %v", err)
	}
	if doc, err := c.Doctor(t.Context()); err != nil || doc.OK || !strings.Contains(doc.Problem, `"nope"`) {
		t.Errorf("doctor: %+v, %v", doc, err)
	}
}

package daemon_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandboxd/sandboxd/daemon/config"
	"github.com/sandboxd/sandboxd/daemon/daemontest"
	"github.com/sandboxd/sandboxd/daemon/httpapi"
	"github.com/sandboxd/sandboxd/internal/apiclient"
	"github.com/sandboxd/sandboxd/isolation"
	"github.com/sandboxd/sandboxd/isolation/fake"
	"github.com/sandboxd/sandboxd/sandbox"
)

// scripted is one engine that holds every layer.
func scripted() []isolation.Engine { return []isolation.Engine{fake.New(fake.Config{})} }

func client(t *testing.T, d *daemontest.Daemon) *apiclient.Client {
	t.Helper()
	c := apiclient.New(d.Socket)
	t.Cleanup(c.Close)
	return c
}

// post sends raw bytes and gives the answer.
func post(t *testing.T, d *daemontest.Daemon, path string, header http.Header, body []byte) (*http.Response, []byte) {
	t.Helper()
	return send(t, d, http.MethodPost, path, header, body)
}

func send(t *testing.T, d *daemontest.Daemon, method, path string, header http.Header, body []byte) (*http.Response, []byte) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.Socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	if header == nil {
		req.Header = http.Header{"Content-Type": {"application/json"}}
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(text) {
		t.Errorf("answer is no UTF-8: %q", text)
	}
	return resp, text
}

func TestRuns_AnswersWithAVerdict(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: scripted()})
	resp, text := post(t, d, "/v1/runs", nil, []byte(`{"solution":"#fake print hi","tests":"#fake pass 1\n#fake fail 2 1 == 2","labels":{"a":"b"}}`))
	var res sandbox.Result
	if err := json.Unmarshal(text, &res); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	if res.Verdict != sandbox.Failed || res.PassedCount != 1 || res.TotalCount != 2 || res.Stdout != "hi\n" {
		t.Errorf("result %s", text)
	}
	if len(res.Layers) != len(sandbox.Layers()) || res.Engine != "fake" || res.Labels["a"] != "b" || len(res.IntegrityNotes) == 0 {
		t.Errorf("result %s", text)
	}
	if res.Usage.RunMillis <= 0 || res.Usage.SetupMillis <= 0 {
		t.Errorf("usage %+v", res.Usage)
	}
}

// badInput is one request that must start nothing.
type badInput struct {
	name     string
	body     string
	status   int
	code     string
	location string
}

func badInputs() []badInput {
	return []badInput{
		{"empty body", ``, 400, "invalid", "body"},
		{"not JSON", `{"solution":`, 400, "invalid", "body"},
		{"trailing text", `{"program":""} x`, 400, "invalid", "body"},
		{"no object", `[1]`, 400, "invalid", "body"},
		{"no UTF-8", "{\"program\":\"\xff\"}", 400, "invalid", "body"},
		{"encoded surrogate", "{\"program\":\"\xed\xb3\xbf\"}", 400, "invalid", "body"},
		{"duplicate name", `{"program":"a","program":"b"}`, 400, "invalid", "body.program"},
		{"duplicate escaped name", `{"program":"a","pr\u006fgram":"b"}`, 400, "invalid", "body.program"},
		{"duplicate inner name", `{"program":"a","limits":{"wall_ms":1,"wall_ms":2}}`, 400, "invalid", "body.limits.wall_ms"},
		{"too deep", `{"labels":` + strings.Repeat(`{"a":`, 40) + `1` + strings.Repeat(`}`, 40) + `}`, 400, "invalid", ""},
		{"unknown field", `{"program":"","tenant":"x"}`, 422, "invalid", "body.tenant"},
		{"field in other case", `{"Program":""}`, 422, "invalid", "body.Program"},
		{"unknown limit", `{"program":"","limits":{"walls":1}}`, 422, "invalid", "body.limits.walls"},
		{"wrong type", `{"program":1}`, 422, "invalid", "body.program"},
		{"limit as text", `{"program":"","limits":{"wall_ms":"5s"}}`, 422, "invalid", "body.limits.wall_ms"},
		{"limit with a fraction", `{"program":"","limits":{"wall_ms":1.5}}`, 422, "invalid", "body.limits.wall_ms"},
		{"negative limit", `{"program":"","limits":{"memory_bytes":-1}}`, 422, "invalid", "body.limits.memory_bytes"},
		{"limit over ceiling", `{"program":"","limits":{"wall_ms":600001}}`, 422, "invalid", "body.limits.wall_ms"},
		{"limit below floor", `{"program":"","limits":{"memory_bytes":1}}`, 422, "invalid", "body.limits.memory_bytes"},
		{"huge limit", `{"program":"","limits":{"wall_ms":99999999999999999999999}}`, 422, "invalid", ""},
		{"unenforceable limit", `{"program":"","limits":{"threads":3}}`, 422, "invalid", "body.limits.threads"},
		{"nothing to run", `{}`, 422, "invalid", "body.solution"},
		{"both modes", `{"program":"","tests":""}`, 422, "invalid", "body.program"},
		{"unknown engine", `{"program":"","engine":"warp"}`, 422, "invalid", "body.engine"},
		{"refused engine", `{"program":"","engine":"process"}`, 403, "denied", "body.engine"},
		{"unknown image", `{"program":"","image":"nope"}`, 422, "invalid", "body.image"},
		{"surrogate in image", `{"program":"","image":"a\ud800"}`, 400, "invalid", "body.image"},
		{"surrogate in stdin", `{"program":"","stdin":"\udcff"}`, 400, "invalid", "body.stdin"},
		{"surrogate in a path", `{"program":"","files":[{"path":"a\ud800","content":""}]}`, 400, "invalid", "body.files[0].path"},
		{"surrogate in a name", `{"program":"","labels":{"\ud800":""}}`, 400, "invalid", "body.labels"},
		{"surrogate in an inner program", `{"program":"","labels":{"program":"\ud800"}}`, 400, "invalid", "body.labels.program"},
		{"unknown layer", `{"program":"","require_layers":["moat"]}`, 422, "invalid", "body.require_layers[0]"},
		{"missing layer", `{"program":"","require_layers":["landlock"]}`, 403, "denied", "body.require_layers"},
		{"split integrity", `{"solution":"","tests":"","integrity":"split"}`, 422, "invalid", "body.integrity"},
		{"unknown integrity", `{"solution":"","tests":"","integrity":"best"}`, 422, "invalid", "body.integrity"},
		{"absolute path", `{"program":"","files":[{"path":"/etc/passwd","content":""}]}`, 422, "invalid", "body.files[0].path"},
		{"path up", `{"program":"","files":[{"path":"a/../../b","content":""}]}`, 422, "invalid", "body.files[0].path"},
		{"unclean path", `{"program":"","files":[{"path":"a//b","content":""}]}`, 422, "invalid", "body.files[0].path"},
		{"empty path", `{"program":"","files":[{"path":"","content":""}]}`, 422, "invalid", "body.files[0].path"},
		{"NUL in a path", `{"program":"","files":[{"path":"a\u0000","content":""}]}`, 422, "invalid", "body.files[0].path"},
		{"long name", `{"program":"","files":[{"path":"` + strings.Repeat("a", 256) + `","content":""}]}`, 422, "invalid", "body.files[0].path"},
		{"same path twice", `{"program":"","files":[{"path":"a","content":""},{"path":"a","content":""}]}`, 422, "invalid", "body.files[1].path"},
		{"file as directory", `{"program":"","files":[{"path":"a","content":""},{"path":"a/b","content":""}]}`, 422, "invalid", "body.files[1].path"},
		{"bad base64", `{"program":"","files":[{"path":"a","content":"%","encoding":"base64"}]}`, 422, "invalid", "body.files[0].content"},
		{"bad encoding", `{"program":"","files":[{"path":"a","content":"","encoding":"hex"}]}`, 422, "invalid", "body.files[0].encoding"},
		{"bad mode", `{"program":"","files":[{"path":"a","content":"","mode":"4755"}]}`, 422, "invalid", "body.files[0].mode"},
		{"files too large", `{"program":"","limits":{"workspace_bytes":65536},"files":[{"path":"a","content":"` + strings.Repeat("a", 65537) + `"}]}`, 422, "invalid", "body.files[0].content"},
		{"NUL in an argument", `{"program":"","args":["a\u0000"]}`, 422, "invalid", "body.args[0]"},
		{"arguments for tests", `{"tests":"","args":["a"]}`, 422, "invalid", "body.args"},
		{"pattern up", `{"program":"","collect":["../*"]}`, 422, "invalid", "body.collect[0]"},
		{"too many patterns", `{"program":"","collect":[` + strings.Repeat(`"a",`, 64) + `"a"]}`, 422, "invalid", "body.collect"},
		{"empty label", `{"program":"","labels":{"":"x"}}`, 422, "invalid", "body.labels"},
		{"large label", `{"program":"","labels":{"a":"` + strings.Repeat("x", 2000) + `"}}`, 422, "invalid", "body.labels.a"},
		{"20 MiB", `{"program":"` + strings.Repeat("x", 20<<20) + `"}`, 413, "invalid", "body"},
	}
}

func TestRuns_BadInput(t *testing.T) {
	support := fake.Without(fake.HoldsAll("fake"), sandbox.LayerLandlock, "kernel 5.4 has no Landlock", "use a newer kernel")
	support.Limits["threads"] = isolation.Unsupported
	engine := fake.New(fake.Config{Support: &support})
	weak := fake.New(fake.Config{Name: "process"})
	d := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{engine, weak}})
	for _, c := range badInputs() {
		t.Run(c.name, func(t *testing.T) {
			resp, text := post(t, d, "/v1/runs", nil, []byte(c.body))
			checkProblem(t, resp, text, c.status, c.code, c.location)
		})
	}
	if made, _ := engine.Counts(); made != 0 {
		t.Errorf("%d sandboxes were made for bad input", made)
	}
}

func checkProblem(t *testing.T, resp *http.Response, text []byte, status int, code, location string) {
	t.Helper()
	var p httpapi.Problem
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatalf("answer %q: %v", text, err)
	}
	if resp.StatusCode != status || p.Status != status || p.Code != code {
		t.Errorf("answer %d %s, want %d %s: %s", resp.StatusCode, p.Code, status, code, text)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	if len(text) > 4096 {
		t.Errorf("the answer has %d bytes", len(text))
	}
	if location == "" {
		return
	}
	for _, d := range p.Errors {
		if d.Location == location && d.Message != "" {
			return
		}
	}
	t.Errorf("no error names %s: %s", location, text)
}

func TestRuns_BadRequests(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: scripted()})
	body := []byte(`{"program":""}`)
	for _, c := range []struct {
		name, method, path, kind string
		status                   int
		code, location           string
	}{
		{"no content type", "POST", "/v1/runs", "", 415, "invalid", "header.Content-Type"},
		{"form", "POST", "/v1/runs", "application/x-www-form-urlencoded", 415, "invalid", "header.Content-Type"},
		{"other charset", "POST", "/v1/runs", "application/json; charset=latin1", 415, "invalid", "header.Content-Type"},
		{"unknown query", "POST", "/v1/runs?tenant=x", "application/json", 422, "invalid", "query.tenant"},
		{"unknown path", "GET", "/v2/runs", "", 404, "not_found", ""},
		{"unknown method", "PATCH", "/v1/runs", "application/json", 404, "not_found", ""},
		{"unknown run", "DELETE", "/v1/runs/run_x", "", 404, "not_found", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, text := send(t, d, c.method, c.path, http.Header{"Content-Type": {c.kind}}, body)
			checkProblem(t, resp, text, c.status, c.code, c.location)
		})
	}
}

func TestRuns_LoneSurrogateIsTheProgramsFault(t *testing.T) {
	engine := fake.New(fake.Config{})
	d := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{engine}})
	for _, c := range []struct {
		body, message string
		phase         sandbox.Phase
	}{
		{`{"program":"x = '\udcff'"}`, `'utf-8' codec can't encode character '\udcff' in position 5: surrogates not allowed`, sandbox.PhaseProgram},
		{`{"program":"\ud83d\ude00\ud800\ud801é\ud802"}`, `'utf-8' codec can't encode characters in position 1-2: surrogates not allowed`, sandbox.PhaseProgram},
		{`{"tests":"\ud800","solution":"aé\uD800"}`, `'utf-8' codec can't encode character '\ud800' in position 2: surrogates not allowed`, sandbox.PhaseSolution},
		{`{"solution":"","tests":"\n\udfff"}`, `'utf-8' codec can't encode character '\udfff' in position 1: surrogates not allowed`, sandbox.PhaseTests},
	} {
		resp, text := post(t, d, "/v1/runs", nil, []byte(c.body))
		var res sandbox.Result
		if err := json.Unmarshal(text, &res); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
		if res.Verdict != sandbox.Raised || res.ExceptionType != "UnicodeEncodeError" || res.ExceptionMessage != c.message || res.Phase != c.phase {
			t.Errorf("%s: %s", c.body, text)
		}
	}
	if made, _ := engine.Counts(); made != 0 {
		t.Errorf("%d sandboxes were made", made)
	}
}

func TestRuns_PairedSurrogatesAreText(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: scripted()})
	_, text := post(t, d, "/v1/runs", nil, []byte(`{"program":"#fake print \ud83d\ude00"}`))
	if !strings.Contains(string(text), "😀") {
		t.Errorf("answer %s", text)
	}
}

func TestRuns_ClientGoneCancels(t *testing.T) {
	engine := fake.New(fake.Config{})
	d := daemontest.Start(t, daemontest.Options{Engines: []isolation.Engine{engine}})
	program := "#fake deaf"
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := client(t, d).Run(ctx, sandbox.Spec{Program: &program})
		gone <- err
	}()
	waitFor(t, "the run is live", func() bool { _, live := engine.Counts(); return live == 1 })
	cancel()
	if err := <-gone; err == nil {
		t.Error("the call succeeded")
	}
	waitFor(t, "the sandbox is gone", func() bool { _, live := engine.Counts(); return live == 0 })
	waitFor(t, "the log tells", func() bool { return strings.Contains(d.Log.String(), `"verdict":"canceled"`) })
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("timed out: %s", what)
}

func TestRuns_FullQueueAnswersAtOnce(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: scripted(), Configure: func(c *config.Config) {
		c.Admission.MaxConcurrent, c.Admission.QueueLength = 1, 0
		c.Shutdown.DrainMillis = 0
	}})
	go occupy(d, `{"program":"#fake deaf"}`)
	waitFor(t, "the run is live", func() bool { l, err := client(t, d).ListRuns(t.Context()); return err == nil && len(l) == 1 })
	resp, text := post(t, d, "/v1/runs", nil, []byte(`{"program":""}`))
	checkProblem(t, resp, text, 429, "exhausted", "")
	if resp.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// occupy starts a run that ends with the daemon.
func occupy(d *daemontest.Daemon, body string) {
	conn, err := net.Dial("unix", d.Socket)
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
	_, _ = io.Copy(io.Discard, conn)
}

// TestRuns_BodiesAreBoundedTogether: bodies on their way are bounded by bytes,
// not only by the number of runs.
func TestRuns_BodiesAreBoundedTogether(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: scripted()})
	const fitting, over = 32, 8 // bodies of 8 MiB, sent but for the last byte
	body := append([]byte("POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n"),
		bytes.Repeat([]byte(" "), 8<<20-1)...)
	refused := make(chan string, fitting+over)
	for range fitting + over {
		conn, err := net.Dial("unix", d.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() { _, _ = conn.Write(body) }()
		go func() {
			line, _ := bufio.NewReader(conn).ReadString('\n')
			refused <- line
		}()
	}
	for range over {
		select {
		case line := <-refused:
			if !strings.Contains(line, " 429 ") {
				t.Errorf("answer %q", line)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("nobody is refused")
		}
	}
}

// TestRuns_AnnouncedBodiesTakeNoRoom: a client that announces bodies and sends
// none keeps nobody out.
func TestRuns_AnnouncedBodiesTakeNoRoom(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Engines: scripted()})
	for range 64 {
		conn, err := net.Dial("unix", d.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8388608\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if resp, text := post(t, d, "/v1/runs", nil, []byte(`{"program":""}`)); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d: %s", resp.StatusCode, text)
		}
	}
}

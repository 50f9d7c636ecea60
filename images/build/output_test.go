package build

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxd/sandboxd/images/source"
	"github.com/sandboxd/sandboxd/internal/dockertest"
	"github.com/sandboxd/sandboxd/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const anID = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// base is an image to build on.
type base struct{ names, triggers []string }

// fakeEngine has bases, can fetch one, and says what it is told of a build.
func fakeEngine(t *testing.T, say func(w io.Writer)) (e source.Engine, pruned *string) {
	t.Helper()
	pruned = new(string)
	fetched := false
	bases := map[string]base{
		"base":     {names: []string{"base:latest"}},
		"nameless": {},
		"busy":     {names: []string{"busy:latest"}, triggers: []string{"ADD http://localhost/ /secret"}},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /images/{rest...}", func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/images/"), "/json")
		if _, known := bases[name]; !known && !fetched {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": anID, "RepoTags": bases[name].names, "Config": map[string]any{"OnBuild": bases[name].triggers}})
	})
	mux.HandleFunc("POST /images/create", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("fromImage") == "docker.io/library/none" {
			_, _ = io.WriteString(w, `{"status":"Pulling","id":"x"}`+"\n"+`{"errorDetail":{"message":"manifest unknown"},"error":"manifest unknown"}`)
			return
		}
		fetched, bases["far:1"] = true, base{names: []string{"far:1"}}
		_, _ = io.WriteString(w, strings.Repeat(`{"status":"Downloading","id":"x","progress":"[=>]"}`+"\n", 100_000)+`{"status":"Pulled"}`)
	})
	mux.HandleFunc("POST /build", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if want := map[bool]string{false: "none", true: ""}[fetched]; q.Get("networkmode") != want || q.Get("forcerm") != "1" || !strings.Contains(q.Get("buildargs"), `"BASE":"`+anID) {
			t.Errorf("asked for %v", q)
		}
		say(w)
	})
	mux.HandleFunc("GET /containers/json", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") })
	mux.HandleFunc("POST /images/prune", func(w http.ResponseWriter, r *http.Request) {
		*pruned = r.URL.Query().Get("filters")
		_, _ = io.WriteString(w, "{}")
	})
	return source.Engine{Host: dockertest.Fake(t, mux)}, pruned
}

func TestPython_TellsOfEachStep(t *testing.T) {
	e, pruned := fakeEngine(t, func(w io.Writer) {
		fmt.Fprint(w, `{"stream":"Step 1/2 : FROM ${BASE}"}`+"\r\n"+`{"stream":"\n"}`+"\n\n"+`{"stream":"Step 2/2 : RUN x\n\u001b[91mone\u001b[0m\ntw"}`+"\n")
		fmt.Fprint(w, `{"stream":"o\n\u001b[2Jthree\tx"}`+"\n"+`{"status":"Downloading","id":"abc","progress":"[=>]"}`+"\n"+`{"status":"Pull complete","id":"abc"}`+"\n")
		fmt.Fprint(w, `{"stream":"Step 1/2 : FROM elsewhere\n"}`+"\n"+`{"aux":{"ID":"`+anID+`"}}`+"\n"+`{"stream":"Successfully built"}`)
	})
	var got []Progress
	id, err := Python(t.Context(), e, Request{Base: "base"}, func(p Progress) { got = append(got, p) })
	want := []Progress{
		{1, 2, "FROM ${BASE}"},
		{2, 2, "RUN x"},
		{2, 2, "one"},
		{2, 2, "two"},
		{2, 2, "abc Pull complete"},
		{2, 2, "\ufffd[2Jthree xStep 1/2 : FROM elsewhere"},
		{2, 2, "Successfully built"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || id != anID {
		t.Errorf("got %s, %v\n%s", id, err, diff)
	}
	if *pruned != "" {
		t.Error("a good build was cleaned up")
	}
}

// TestPython_BoundsWhatAnEngineSays: neither its build's output nor itself is
// believed to have an end, or sense.
func TestPython_BoundsWhatAnEngineSays(t *testing.T) {
	forever := func(text string) func(io.Writer) {
		return func(w io.Writer) {
			for {
				if _, err := io.WriteString(w, text); err != nil {
					return
				}
			}
		}
	}
	once := func(text string) func(io.Writer) { return func(w io.Writer) { _, _ = io.WriteString(w, text) } }
	for title, c := range map[string]struct {
		say  func(io.Writer)
		kind sandbox.Kind
		want string
	}{
		"endless output":  {forever(`{"stream":"` + strings.Repeat("x\\n", 500) + `"}` + "\n"), sandbox.KindExhausted, "longer than"},
		"endless line":    {forever(`{"stream":"` + strings.Repeat("x", 1000) + `"}` + "\n"), sandbox.KindExhausted, "longer than"},
		"endless message": {forever("x"), sandbox.KindExhausted, "longer than"},
		"endless blanks":  {forever("\n\n\n\n\n\n\n\n"), sandbox.KindExhausted, "longer than"},
		"nothing":         {once(""), sandbox.KindUnavailable, "without a word"},
		"no image":        {once(`{"stream":"Step 1/1 : FROM x\n"}`), sandbox.KindUnavailable, "without a word"},
		"no messages":     {once("<html>"), sandbox.KindUnavailable, "cannot be read"},
		"half a message":  {once(`{"stream":"St`), sandbox.KindUnavailable, "cannot be read"},
		"other image":     {once(`{"aux":{"ID":"../../containers/x"}}`), sandbox.KindUnavailable, "no digest"},
		"error":           {once(`{"stream":"Step 2/3 : RUN x\nlast\u001b words\n"}` + "\n" + `{"errorDetail":{"code":7},"error":"it did"}`), sandbox.KindInvalid, "step 2 of 3: RUN x: it ended with 7\nlast\ufffd words"},
		"error, long":     {once(`{"stream":"` + strings.Repeat("x\\n", 5000) + `"}` + "\n" + `{"error":"` + strings.Repeat("y", 50000) + `"}`), sandbox.KindInvalid, "yyy"},
	} {
		t.Run(title, func(t *testing.T) {
			e, pruned := fakeEngine(t, c.say)
			id, err := Python(t.Context(), e, Request{Base: "base"}, nil)
			if id != "" || sandbox.KindOf(err) != c.kind || err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2000 {
				t.Errorf("got %q, kind %s: %.2000v", id, sandbox.KindOf(err), err)
			}
			if !strings.Contains(*pruned, markLabel) || !strings.Contains(*pruned, "dangling") {
				t.Errorf("cleaned up: %q", *pruned)
			}
		})
	}
}

func TestPython_UnfitBasesAreRefused(t *testing.T) {
	e, _ := fakeEngine(t, func(io.Writer) { t.Error("built") })
	for _, c := range []struct {
		base    string
		network bool
		kind    sandbox.Kind
		want    string
	}{
		{"other", false, sandbox.KindNotFound, "base other"},
		{"none", true, sandbox.KindNotFound, "manifest unknown"},
		{"sha256:" + strings.Repeat("1", 64), true, sandbox.KindNotFound, "does not have it"},
		{"nameless", false, sandbox.KindInvalid, "no name"},
		{"busy", false, sandbox.KindInvalid, "1 ONBUILD triggers"},
	} {
		_, err := Python(t.Context(), e, Request{Base: c.base, Network: c.network}, nil)
		if err == nil || sandbox.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// TestPython_FetchesItsBase only where the network is allowed.
func TestPython_FetchesItsBase(t *testing.T) {
	e, _ := fakeEngine(t, func(w io.Writer) { _, _ = io.WriteString(w, `{"aux":{"ID":"`+anID+`"}}`) })
	var got []Progress
	_, err := Python(t.Context(), e, Request{Base: "far:1", Network: true}, func(p Progress) { got = append(got, p) })
	if diff := cmp.Diff([]Progress{{Text: "Pulled"}}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestPython_EngineAbsentIsUnavailable(t *testing.T) {
	_, err := Python(t.Context(), source.Engine{Host: "unix://" + t.TempDir() + "/none.sock"}, Request{}, nil)
	if sandbox.KindOf(err) != sandbox.KindUnavailable || !strings.Contains(err.Error(), "systemctl start docker") {
		t.Error(err)
	}
}

// FuzzOutput reads what no Engine says.
func FuzzOutput(f *testing.F) {
	f.Add(`{"stream":"Step 1/2 : FROM x\nSte"}` + "\n" + `{"aux":{"ID":"` + anID + `"}}` + "\n" + `{"error":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		o := output{tell: func(p Progress) {
			if len(p.Text) > 4*maxLineBytes || strings.ContainsAny(p.Text, "\x1b\n\r\x00") {
				t.Errorf("tells %q", p.Text)
			}
		}}
		_ = o.build(io.LimitReader(strings.NewReader(text), 1<<20))
	})
}

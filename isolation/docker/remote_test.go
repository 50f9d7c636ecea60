package docker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxd/sandboxd/isolation/docker"
	"github.com/sandboxd/sandboxd/isolation/enginetest"
	"github.com/sandboxd/sandboxd/sandbox"
)

// authority issues certificates for one test.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", nil)
	return a
}

// issue makes NAME.pem and NAME.key. Without an issuer it is its own.
func (a *authority) issue(name string, address net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	issuer, signer := a.cert, a.key
	if address != nil {
		template.IPAddresses = []net.IP{address}
	}
	if issuer == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		issuer, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) files(name string) docker.TLS {
	in := func(file string) string { return filepath.Join(a.dir, file) }
	return docker.TLS{CA: in("ca.pem"), Cert: in(name + ".pem"), Key: in(name + ".key")}
}

// byTCP lets those whom a knows reach an Engine's socket by TCP.
func byTCP(t testing.TB, a *authority, on *enginetest.DockerEngine) string {
	t.Helper()
	a.issue("server", net.IPv4(127, 0, 0, 1))
	files := a.files("server")
	own, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { pass(conn, on.Socket) })
		}
	})
	return "tcp://" + l.Addr().String()
}

// pass joins two connections until one of them ends.
func pass(conn net.Conn, socket string) {
	defer conn.Close()
	to, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{conn, to}, {to, conn}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = conn.Close()
			_ = to.Close()
		})
	}
	both.Wait()
}

// unheldRemote is what no Landlock keeps from the supervisor's own id, beside the
// rest.
var unheldRemote = map[string]string{
	"clone_flags": unheld["clone_flags"], "inherited_descriptors": unheld["inherited_descriptors"],
	"wakes_the_sleeper": unheld["wakes_the_sleeper"],
	"parked_code":       "the supervisor, of the same id, can be signalled, and as a first process gets none of it",
}

// TestRemote_Conforms: an Engine of another machine, for which one of this one is
// taken, is asked for what the kernel cannot be asked.
func TestRemote_Conforms(t *testing.T) {
	on, a := theEngine(t), newAuthority(t)
	a.issue("client", nil)
	e := newEngine(t, docker.Config{Host: byTCP(t, a, on), TLS: a.files("client")})
	docker.Blind(e)
	s, err := e.Probe(t.Context())
	if err != nil || !s.Usable || s.Layer(sandbox.LayerLandlock).State != sandbox.LayerMissing {
		t.Fatalf("%v, %s, %+v", err, s.Reason, s.Layer(sandbox.LayerLandlock))
	}
	enginetest.Run(t, e, enginetest.Options{Golden: "testdata/posture.remote.golden", Unheld: unheldRemote, Quick: os.Getenv(enginesEnv) != "all"})
}

// TestRemote_BelievesNobody: neither an Engine that the authority does not know, nor
// a daemon that the Engine does not.
func TestRemote_BelievesNobody(t *testing.T) {
	on, known, stranger := theEngine(t), newAuthority(t), newAuthority(t)
	known.issue("client", nil)
	stranger.issue("client", nil)
	host := byTCP(t, known, on)
	for name, files := range map[string]docker.TLS{
		"a strange daemon": {CA: known.files("client").CA, Cert: stranger.files("client").Cert, Key: stranger.files("client").Key},
		"a strange Engine": {CA: stranger.files("client").CA, Cert: known.files("client").Cert, Key: known.files("client").Key},
	} {
		s, err := newEngine(t, docker.Config{Host: host, TLS: files}).Probe(t.Context())
		if err != nil || s.Usable || !strings.Contains(s.Reason, "tls:") && !strings.Contains(s.Reason, "x509:") {
			t.Errorf("%s: usable %v, %s, %v", name, s.Usable, s.Reason, err)
		}
	}
}

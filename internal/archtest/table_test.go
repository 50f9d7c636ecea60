package archtest

// tree is one row of the import table: what the packages under path may import
// of this module. Each entry covers the tree under it. Test files may import
// more, see testAlso.
type tree struct {
	path  string
	allow []string
	tests []string // for test files beside testAlso
}

// exact marks an entry of allow that covers one package and not what is below.
const exact = "="

// trees from the bottom up. The longest matching path decides.
var trees = []tree{
	{path: "."}, // embeds Dockerfile.python
	{path: "sandbox"},
	{path: "sandbox/pyrunner", allow: []string{"=sandbox"}},

	{path: "internal/linux", allow: []string{"=sandbox", "internal/linux", "internal/rollback"}},
	{path: "internal/rollback"},
	{path: "internal/testenv", allow: []string{"internal/linux"}},
	{path: "internal/dockertest"},

	{path: "isolation", allow: []string{"sandbox", "internal/linux", "internal/rollback"}},
	{path: "images", allow: []string{"sandbox", "internal/linux", "internal/rollback"}},
	{path: "images/unpack", allow: []string{"=sandbox", "internal/linux"}},
	{path: "images/source", allow: []string{"=sandbox"}},
	{path: "images/build", allow: []string{"=.", "=sandbox", "images/source"}},
	{path: "images/store", allow: []string{"=sandbox", "images", "internal/linux", "internal/rollback"}},
	{path: "isolation/enginetest", allow: []string{"sandbox", "=isolation", "images", "internal/linux", "internal/testenv"}},
	{path: "isolation/fake", allow: []string{"sandbox", "=isolation"}},
	{path: "isolation/pool", allow: []string{"=sandbox", "=isolation"}},
	{path: "isolation/oci", allow: []string{"sandbox", "=isolation", "isolation/pool", "images", "internal/linux", "internal/rollback"}},
	{path: "isolation/docker", allow: []string{"sandbox", "=isolation", "isolation/pool", "images", "internal/linux", "internal/rollback"}},
	{path: "isolation/process", allow: []string{"sandbox", "=isolation", "images", "internal/linux", "internal/rollback"}},
	{path: "isolation/native", allow: []string{"sandbox", "=isolation", "isolation/pool", "images", "internal/linux", "internal/rollback"}},

	{path: "daemon/store", allow: []string{"=sandbox"}},
	{path: "daemon/tenants", allow: []string{"=sandbox"}},
	{path: "daemon/catalog", allow: []string{"=sandbox", "daemon/tenants"}, tests: []string{"daemon/daemontest"}},
	{path: "daemon/runs", allow: []string{"sandbox", "=isolation", "daemon/tenants", "daemon/store"}},
	{path: "daemon/httpapi", allow: []string{"sandbox", "=isolation", "daemon/runs", "daemon/catalog", "daemon/tenants", "daemon/store"}},
	{path: "daemon/config", allow: []string{"=sandbox", "=isolation", "daemon/runs", "daemon/catalog", "daemon/httpapi", "daemon/tenants", "daemon/store"}},
	{path: "daemon/daemontest", allow: []string{"sandbox", "=isolation", "isolation/fake", "daemon"}},
	{path: "daemon", allow: []string{"sandbox", "=isolation", "daemon"}},

	{path: "internal/apiclient", allow: []string{"=sandbox"}},
	{path: "cmd/sandboxd", allow: []string{"sandbox", "isolation", "images", "daemon", "internal/linux"}},
	// Its tests may start a daemon over the fake engine within their process.
	{path: "cmd/sandboxctl", allow: []string{"=sandbox", "internal/apiclient"}, tests: []string{"daemon"}},

	// Tools and tests of the whole.
	{path: "internal/archtest"},
	{path: "internal/e2e", allow: []string{"=sandbox", "=isolation", "internal/apiclient", "internal/testenv"}},
	{path: "internal/gen", allow: []string{"=sandbox", "=isolation", "daemon"}},
	{path: "internal/vm"},
	{path: "internal/tools"},
}

// testAlso is what every test file may import beside what its package may.
var testAlso = []string{
	"sandbox", "=isolation", "isolation/fake", "isolation/enginetest",
	"internal/linux", "internal/testenv", "internal/dockertest", "internal/apiclient", "images",
}

// outside is who alone may import a package that is not ours.
var outside = []struct {
	pkg   string // the package and what is below it
	trees []string
	why   string
}{
	{"golang.org/x/sys/unix", []string{"internal/linux", "internal/vm"}, "the kernel is spoken to under internal/linux"},
	// sandboxd and the tests that stop it name signals.
	{"syscall", []string{"internal/linux", "internal/vm", "internal/e2e", "cmd/sandboxd"}, "the kernel is spoken to under internal/linux"},
	{"unsafe", []string{"internal/linux"}, "only in *_unsafe.go under internal/linux"},
	{"github.com/danielgtaylor/huma", []string{"daemon/httpapi"}, "only daemon/httpapi knows HTTP"},
	{"modernc.org/sqlite", []string{"daemon/store"}, "only daemon/store knows the database"},
	{"github.com/spf13/cobra", []string{"cmd"}, "command lines are the programs' own"},
	{"github.com/google/go-containerregistry", []string{"images"}, "only images knows registries and layers"},
	{"github.com/docker/docker", []string{"isolation/docker", "images"}, "only they speak to a Docker engine"},
}

// vagueNames say nothing about what a package or file owns.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "types", "shared", "misc", "base"}

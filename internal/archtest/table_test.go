package archtest

// tree is one row of the import table: what the packages under path may import
// of this module. Each entry covers the tree under it. Test files may import
// more, see testAlso.
type tree struct {
	path  string
	allow []string
}

// exact marks an entry of allow that covers one package and not what is below.
const exact = "="

// trees from the bottom up. The longest matching path decides.
var trees = []tree{
	{"sandbox", nil},
	{"sandbox/pyrunner", []string{"=sandbox"}},

	{"internal/linux", []string{"=sandbox", "internal/linux", "internal/rollback"}},
	{"internal/rollback", nil},
	{"internal/testenv", []string{"internal/linux"}},

	{"isolation", []string{"sandbox", "internal/linux", "internal/rollback"}},
	{"images", []string{"sandbox", "internal/linux", "internal/rollback"}},
	{"isolation/enginetest", []string{"sandbox", "=isolation", "images", "internal/linux", "internal/testenv"}},
	{"isolation/fake", []string{"sandbox", "=isolation"}},
	{"isolation/process", []string{"sandbox", "=isolation", "images", "internal/linux", "internal/rollback"}},
	{"isolation/native", []string{"sandbox", "=isolation", "images", "internal/linux", "internal/rollback"}},

	{"daemon/store", []string{"=sandbox"}},
	{"daemon/tenants", []string{"=sandbox"}},
	{"daemon/runs", []string{"sandbox", "=isolation", "daemon/tenants", "daemon/store"}},
	{"daemon/httpapi", []string{"sandbox", "=isolation", "daemon/runs", "daemon/tenants", "daemon/store"}},
	{"daemon/config", []string{"=sandbox", "=isolation", "daemon/runs", "daemon/httpapi", "daemon/tenants", "daemon/store"}},
	{"daemon", []string{"sandbox", "=isolation", "daemon"}},

	{"internal/apiclient", []string{"=sandbox"}},
	{"cmd/sandboxd", []string{"sandbox", "isolation", "images", "daemon", "internal/linux"}},
	{"cmd/sandboxctl", []string{"=sandbox", "internal/apiclient"}},

	// Tools and tests of the whole.
	{"internal/archtest", nil},
	{"internal/e2e", []string{"=sandbox", "=isolation", "internal/apiclient", "internal/testenv"}},
	{"internal/gen", []string{"=sandbox", "=isolation", "daemon"}},
	{"internal/vm", nil},
	{"internal/tools", nil},
}

// testAlso is what every test file may import beside what its package may.
var testAlso = []string{
	"sandbox", "=isolation", "isolation/fake", "isolation/enginetest",
	"internal/linux", "internal/testenv", "internal/apiclient", "images",
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
	{"github.com/docker/docker", []string{"isolation/docker", "images"}, "only they speak to a Docker engine"},
}

// vagueNames say nothing about what a package or file owns.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "types", "shared", "misc", "base"}

package images

import (
	"fmt"
	"strings"
)

// User is a line of the made /etc/passwd and /etc/group.
type User struct {
	Name string
	ID   uint32 // user and group id, as seen inside the sandbox
	Home string
}

// defaultUsers are what a program may look up when the caller names none.
var defaultUsers = []User{
	{Name: "root", ID: 0, Home: "/nonexistent"},
	{Name: "sandbox", ID: 1000, Home: "/workspace"},
	{Name: "nobody", ID: 65534, Home: "/nonexistent"},
}

// EtcFiles are the files that every image has in /etc, whatever it came with.
func EtcFiles() []File { return etcFiles(defaultUsers) }

// etcFiles makes the few files that the C library and Python read. Names are
// looked up in files only, so that no resolver is ever asked.
func etcFiles(users []User) []File {
	var passwd, group strings.Builder
	for _, u := range users {
		fmt.Fprintf(&passwd, "%s:x:%d:%d::%s:/usr/sbin/nologin\n", u.Name, u.ID, u.ID, u.Home)
		fmt.Fprintf(&group, "%s:x:%d:\n", u.Name, u.ID)
	}
	files := map[string]string{
		"/etc/passwd":        passwd.String(),
		"/etc/group":         group.String(),
		"/etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n",
		"/etc/hostname":      "sandbox\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
		"/etc/resolv.conf":   "",
		"/etc/protocols":     "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\n",
		"/etc/services":      "domain 53/tcp\ndomain 53/udp\nhttp 80/tcp\nhttps 443/tcp\n",
	}
	var out []File
	for _, path := range sortedKeys(files) {
		out = append(out, File{Path: path, Mode: 0o644, Data: []byte(files[path])})
	}
	return out
}

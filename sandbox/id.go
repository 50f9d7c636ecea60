package sandbox

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// NewID makes an identifier that cannot be guessed: the prefix, an underscore
// and 130 random bits in lower-case base 32.
func NewID(prefix string) string {
	var b [17]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails since Go 1.24
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
	return prefix + "_" + strings.ToLower(text[:26])
}

package pyrunner

import (
	"fmt"
	"strings"
)

// Output is one captured stream: the first and the last bytes of it.
type Output struct {
	Head  []byte
	Tail  []byte // empty unless something between was left out
	Total int64  // bytes written by the program
}

// Truncated tells whether bytes were left out.
func (o Output) Truncated() bool {
	return o.Total > int64(len(o.Head)+len(o.Tail))
}

// Text is the stream as text: bytes that are no UTF-8 are replaced, and a cut
// is marked with the number of bytes left out.
func (o Output) Text() string {
	head := strings.ToValidUTF8(string(o.Head), "\ufffd")
	if !o.Truncated() {
		return head + strings.ToValidUTF8(string(o.Tail), "\ufffd")
	}
	cut := o.Total - int64(len(o.Head)+len(o.Tail))
	return fmt.Sprintf("%s\n… [%d bytes left out] …\n%s", head, cut, strings.ToValidUTF8(string(o.Tail), "\ufffd"))
}

// capture keeps what the supervisor forwards of one stream. The supervisor
// applies the cap itself; a guest that sends more breaks the protocol.
type capture struct {
	cap  int64
	head []byte
	tail []byte
}

func newCapture(limit int64) capture { return capture{cap: limit} }

func (c *capture) add(data []byte, tail bool) error {
	if int64(len(c.head)+len(c.tail)+len(data)) > c.cap {
		return fmt.Errorf("%w: output over %d bytes", ErrFrame, c.cap)
	}
	if tail {
		c.tail = append(c.tail, data...)
	} else {
		c.head = append(c.head, data...)
	}
	return nil
}

// output closes the stream. total is the supervisor's count, 0 when it is gone.
func (c *capture) output(total int64) Output {
	return Output{Head: c.head, Tail: c.tail, Total: max(total, int64(len(c.head)+len(c.tail)))}
}

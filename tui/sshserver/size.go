package sshserver

import (
	"charm.land/ssh"

	"github.com/failslow/falcon/tui"
)

// boundedSize is a window's size within bounds: a client may claim any.
func boundedSize(w ssh.Window) tui.Size {
	return tui.Size{W: min(max(1, w.Width), columnsMax), H: min(max(1, w.Height), rowsMax)}
}

// watchSizes passes the newest size on. It reads until the channel closes, as the
// library's request loop waits for a reader.
func watchSizes(in <-chan ssh.Window) <-chan tui.Size {
	out := make(chan tui.Size, 1)
	go func() {
		for w := range in {
			select {
			case <-out: // no one took the older one
			default:
			}
			out <- boundedSize(w)
		}
	}()
	return out
}

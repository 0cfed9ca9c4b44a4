package sshserver

import (
	"charm.land/ssh"

	"github.com/failslow/falcon/tui"
)

// claimedSize is a window's size as the client has it; what is drawn into is bounded elsewhere.
func claimedSize(w ssh.Window) tui.Size {
	return tui.Size{W: w.Width, H: w.Height}
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
			out <- claimedSize(w)
		}
	}()
	return out
}

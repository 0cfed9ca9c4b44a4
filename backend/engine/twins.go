package engine

import (
	"net"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/fleet"
)

// twinsAgain is how long two agents with one name are not reported again.
const twinsAgain = 10 * time.Minute

// twinHosts are two agents without their ports, which change with each connection.
type twinHosts struct {
	node           falcon.Node
	stays, refused string
}

// tellTwins says that two agents have one name: once for each two, as the one that is
// refused comes again and again.
func (l *operatorLog) tellTwins(n *fleet.Node, now time.Time) {
	t := n.Twins()
	if t == nil || t.At != now {
		return
	}
	hosts := twinHosts{t.Node, hostIn(t.Stays), hostIn(t.Refused)}
	if at, announced := l.news.twins[hosts]; announced && now.Sub(at) < twinsAgain {
		return
	}
	if l.news.twins == nil || len(l.news.twins) >= newsKinds {
		l.news.twins = map[twinHosts]time.Time{}
	}
	l.news.twins[hosts] = now
	l.logf("agent", 2, clean(string(t.Node)), "%s", clean(t.Error()))
}

func hostIn(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

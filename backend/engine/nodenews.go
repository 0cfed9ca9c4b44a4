package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// A thousand agents that come or go together are one piece of news, or one for each of their
// racks: the first few of a second are logged as they come, the others in one line at its end.
const (
	newsOwn   = 8 // nodes that have a line of their own, in newsSpan
	newsSpan  = time.Second
	newsRacks = 8 // racks that have a line of their own
)

// nodeNews gathers what has become of nodes' agents.
type nodeNews struct {
	racks map[falcon.Node]string // as configured
	since time.Time
	own   int
	more  map[newsKind][]falcon.Node
}

// newsKind is what a line says of nodes: it has them where %s stands.
type newsKind struct {
	severity  int32
	one, many string
}

// What becomes of agents.
var (
	agentsGone    = newsKind{2, "the agent of node %s is gone", "the agents of %s are gone"}
	agentsStopped = newsKind{0, "the agent of node %s stopped in order", "the agents of %s stopped in order"}
)

func agentsCame(version string) newsKind {
	version = strings.ReplaceAll(version, "%", "%%")
	return newsKind{0, "the agent of node %s connected (version " + version + ")", "the agents of %s connected (version " + version + ")"}
}

// nodeSays logs what has become of a node's agent.
func (l *operatorLog) nodeSays(now time.Time, k newsKind, n falcon.Node) {
	news := &l.news
	if now.Sub(news.since) >= newsSpan || now.Before(news.since) {
		l.tellNews(now)
		news.since, news.own = now, 0
	}
	if news.own < newsOwn {
		news.own++
		l.logf("agent", k.severity, clean(string(n)), k.one, clean(string(n)))
		return
	}
	if news.more == nil {
		news.more = map[newsKind][]falcon.Node{}
	}
	news.more[k] = append(news.more[k], n)
}

// tellNews logs what was gathered, once its second is over.
func (l *operatorLog) tellNews(now time.Time) {
	news := &l.news
	if len(news.more) == 0 || now.Sub(news.since) < newsSpan && !now.Before(news.since) {
		return
	}
	kinds := slices.SortedFunc(maps.Keys(news.more), func(a, b newsKind) int {
		return cmp.Or(cmp.Compare(b.severity, a.severity), cmp.Compare(a.many, b.many))
	})
	for _, k := range kinds {
		for _, text := range news.texts(news.more[k]) {
			l.logf("agent", k.severity, "", k.many, text)
		}
	}
	news.more = nil
}

// texts name nodes: those of a rack together, where racks are configured and there are few.
func (n *nodeNews) texts(nodes []falcon.Node) []string {
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	by := map[string][]falcon.Node{}
	for _, x := range nodes {
		by[n.racks[x]] = append(by[n.racks[x]], x)
	}
	if len(by) > newsRacks || len(by[""]) == len(nodes) {
		return []string{fmt.Sprintf("%d nodes (%s)", len(nodes), cleanNodes(nodes))}
	}
	var out []string
	for _, rack := range slices.Sorted(maps.Keys(by)) {
		where := ""
		if rack != "" {
			where = " of rack " + rack
		}
		out = append(out, fmt.Sprintf("%d nodes%s (%s)", len(by[rack]), where, cleanNodes(by[rack])))
	}
	return out
}

func cleanNodes(nodes []falcon.Node) string { return clean(falcon.NodesText(nodes)) }

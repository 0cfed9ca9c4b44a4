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
// While the crowd goes on there is one line in newsCrowd.
const (
	newsOwn   = 16 // nodes that have a line of their own, in newsSpan
	newsSpan  = time.Second
	newsCrowd = 5 * time.Second
	newsRacks = 8 // racks that have a line of their own
	newsKinds = 16
)

// nodeNews gathers what has become of nodes' agents.
type nodeNews struct {
	racks map[falcon.Node]string // as configured
	kinds map[newsKind]*newsOf
	twins map[twinHosts]time.Time // when they were reported
}

// newsOf is one kind of news.
type newsOf struct {
	since time.Time // its span began
	span  time.Duration
	own   int           // lines of their own in it
	more  []falcon.Node // for the line at its end
}

func (n *newsOf) isOver(now time.Time) bool {
	return now.Sub(n.since) >= n.span || now.Before(n.since)
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
	return newsKind{
		0,
		"the agent of node %s connected (version " + version + ")",
		"the agents of %s connected (version " + version + ")",
	}
}

// nodeSays logs what has become of a node's agent.
func (l *operatorLog) nodeSays(now time.Time, k newsKind, n falcon.Node) {
	l.tellNews(now)
	if len(l.news.kinds) >= newsKinds && l.news.kinds[k] == nil {
		k = agentsCame("not listed") // agents name their versions themselves
	}
	news := l.news.kinds[k]
	if news == nil {
		if l.news.kinds == nil {
			l.news.kinds = map[newsKind]*newsOf{}
		}
		news = &newsOf{since: now, span: newsSpan}
		l.news.kinds[k] = news
	}
	if news.own < newsOwn {
		news.own++
		l.logf("agent", k.severity, clean(string(n)), k.one, clean(string(n)))
		return
	}
	news.more = append(news.more, n)
}

// tellNews logs what was gathered, of each kind once its span is over.
func (l *operatorLog) tellNews(now time.Time) {
	kinds := slices.SortedFunc(maps.Keys(l.news.kinds), func(a, b newsKind) int {
		return cmp.Or(cmp.Compare(b.severity, a.severity), cmp.Compare(a.many, b.many))
	})
	for _, k := range kinds {
		news := l.news.kinds[k]
		switch {
		case !news.isOver(now):
		case len(news.more) == 0:
			delete(l.news.kinds, k)
		default:
			for _, text := range l.news.texts(news.more) {
				l.logf("agent", k.severity, "", k.many, text)
			}
			*news = newsOf{since: now, span: newsCrowd, own: newsOwn}
		}
	}
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
		out = append(out, fmt.Sprintf("%d nodes%s (%s)",
			len(by[rack]), where, cleanNodes(by[rack])))
	}
	return out
}

func cleanNodes(nodes []falcon.Node) string {
	return clean(falcon.NodesText(nodes))
}

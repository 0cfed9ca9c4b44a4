package autopsy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

const (
	silentTimes    = 20 // usual times without an iteration
	silentLeast    = 20 * time.Minute
	sureOfSilence  = 0.7
	sureOfStacks   = 0.75
	sureOfCalls    = 0.85
	sureOfCrowd    = 0.6
	confidentCalls = 2 // ranks whose calls are known, at least
)

var zero time.Time

// roundDuration is a duration for people.
func roundDuration(d time.Duration) string {
	return falcon.DurationText(float64(d) / float64(time.Millisecond))
}

// judgeCalls finds who is not where the others of its group are.
func judgeCalls(f *Facts) opinion {
	type key struct{ group, op string }
	groups := map[key][]Call{}
	for _, c := range newestCalls(f.Calls) {
		k := key{group: c.Group}
		if c.Counted {
			k.op = c.Op
		}
		groups[k] = append(groups[k], c)
	}
	for k, calls := range groups { // who does not answer is missing in each operation of its group
		if k.op == "" && !slices.ContainsFunc(calls, func(c Call) bool {
			return c.Seq >= -1
		}) {
			for other := range groups {
				if other.group == k.group && other != k {
					groups[other] = append(groups[other], calls...)
				}
			}
		}
	}
	var best opinion
	for _, k := range slices.SortedFunc(maps.Keys(groups), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.op, b.op))
	}) {
		o := judgeGroup(groups[k])
		if o.confidence > best.confidence || best.kind == "" && o.judged {
			best = o
		}
	}
	return best
}

// newestCalls keeps of several lines on one rank and group what they say together.
func newestCalls(calls []Call) []Call {
	type key struct {
		rank      int
		group, op string
	}
	at := map[key]int{}
	var out []Call
	groupOf, only := namedGroups(calls)
	for _, c := range calls {
		if c.Group == "" {
			c.Group = cmp.Or(groupOf[c.Rank], only)
		}
		k := key{c.Rank, c.Group, ""}
		if c.Counted {
			k.op = c.Op
		}
		i, ok := at[k]
		if !ok || c.Rank < 0 {
			at[k] = len(out)
			out = append(out, c)
			continue
		}
		was := &out[i]
		was.Seq = max(was.Seq, c.Seq)
		was.Op = cmp.Or(was.Op, c.Op)
		was.Size = cmp.Or(was.Size, c.Size)
		was.TimedMs = max(was.TimedMs, c.TimedMs)
		was.N = max(was.N, c.N)
	}
	return out
}

// namedGroups are the groups that each rank's lines name, for its lines that name none, and the one that all
// name where there is only one.
func namedGroups(calls []Call) (of map[int]string, only string) {
	of = map[int]string{}
	all := map[string]bool{}
	for _, c := range calls {
		if c.Group == "" {
			continue
		}
		if all[c.Group] = true; c.Rank >= 0 {
			of[c.Rank] = c.Group
		}
	}
	if len(all) == 1 {
		for only = range all {
		}
	}
	return of, only
}

// judgeGroup compares the ranks of one group.
func judgeGroup(calls []Call) opinion {
	n := 0
	for _, c := range calls {
		n += c.N
	}
	if n < confidentCalls {
		return opinion{}
	}
	for _, by := range []func([]Call, int) opinion{byAnswer, bySeq, byOp, bySize} {
		if o := by(calls, n); o.kind != "" {
			return o
		}
	}
	if slices.ContainsFunc(calls, func(c Call) bool { return c.TimedMs > 0 }) {
		return opinion{
			kind:       KindHang,
			rank:       orderHang,
			confidence: sureOfLost,
			judged:     true,
			findings:   callFindings(calls),
			summary:    fmt.Sprintf("%d ranks are in the same call, and none ended it", n),
			next: []string{
				"give the flight recorder's dumps of all ranks; test the links between these ranks",
			},
		}
	}
	return opinion{judged: true}
}

// byAnswer names ranks that do not answer.
func byAnswer(calls []Call, n int) opinion {
	return minority(calls, n, func(c Call) string {
		if c.Seq < -1 {
			return "silent"
		}
		return "answers"
	}, "silent", "does not answer, or is gone")
}

// bySeq names the ranks that are behind.
func bySeq(calls []Call, n int) opinion {
	least := int64(-1)
	most := int64(-1)
	for _, c := range calls {
		if c.Seq < 0 {
			continue
		}
		if least < 0 || c.Seq < least {
			least = c.Seq
		}
		most = max(most, c.Seq)
	}
	if least < 0 || least == most {
		return opinion{}
	}
	seq := func(c Call) string { return fmt.Sprint(c.Seq) }
	o := minority(
		calls,
		n,
		seq,
		fmt.Sprint(least),
		fmt.Sprintf("is at call %d, others at %d", least, most),
	)
	if o.kind == "" { // most are behind: those ahead have gone on without them
		o = opinion{
			kind:       KindHang,
			rank:       orderHang,
			confidence: sureOfCrowd,
			judged:     true,
			findings:   callFindings(calls),
			summary: fmt.Sprintf(
				"ranks are at different calls, %d to %d, and most are behind: who is ahead skipped a call or took another branch",
				least, most,
			),
			next: []string{
				"compare what the ranks that are ahead did with the others: a condition that differs between ranks",
			},
		}
	}
	return o
}

func byOp(calls []Call, n int) opinion {
	return odd(calls, n, func(c Call) string { return c.Op }, "is in %s, others in %s")
}

func bySize(calls []Call, n int) opinion {
	return odd(calls, n, func(c Call) string {
		if c.Size == 0 {
			return ""
		}
		return fmt.Sprint(c.Size)
	}, "has %s elements, others %s")
}

// odd names the ranks whose value is not that of the most.
func odd(calls []Call, n int, of func(Call) string, text string) opinion {
	count := map[string]int{}
	for _, c := range calls {
		if v := of(c); v != "" {
			count[v] += max(c.N, 1)
		}
	}
	if len(count) < 2 {
		return opinion{}
	}
	values := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(-cmp.Compare(count[a], count[b]), cmp.Compare(a, b))
	})
	usual := values[0]
	rare := values[len(values)-1]
	return minority(calls, n, of, rare, fmt.Sprintf(text, rare, usual))
}

// minority names the ranks of a value where they are fewer than half.
func minority(calls []Call, n int, of func(Call) string, value, text string) opinion {
	var who []Who
	counted := 0
	var found []Call
	for _, c := range calls {
		if of(c) != value {
			continue
		}
		counted += c.N
		found = append(found, c)
		if c.Rank >= 0 {
			who = append(who, Who{Rank: c.Rank, Host: c.Host})
		}
	}
	size := max(counted, len(who))
	if size == 0 || 2*size > n || size == n {
		return opinion{}
	}
	if len(who) == 0 {
		return opinion{}
	}
	slices.SortFunc(who, func(a, b Who) int {
		return cmp.Compare(a.Rank, b.Rank)
	})
	if len(who) > 1 {
		for i := range who {
			who[i].Host = "" // ranks are named; their nodes are in the findings
		}
	}
	return opinion{
		kind:       KindHang,
		rank:       orderHang,
		confidence: sureOfCalls,
		who:        who,
		judged:     true,
		summary:    names(who) + " " + text,
		findings:   callFindings(found),
		next: []string{
			"look at the stack of " + names(who) + ": why is it not in the call of the others",
		},
	}
}

func callFindings(calls []Call) []Finding {
	var out []Finding
	for _, c := range calls[:min(listed/4, len(calls))] {
		text := fmt.Sprintf("in %s, call %d", cmp.Or(c.Op, "a call that is not named"), c.Seq)
		if c.Seq < -1 {
			text = "it does not answer"
		}
		out = append(out, finding("call", Who{Rank: c.Rank, Host: c.Host}, zero, c.Source, text))
	}
	return out
}

package record

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failslow/falcon/tui/feed"
)

// ErrRecording answers every decision on a recording.
var ErrRecording = errors.New("this is a recording: nothing can be decided in it")

// Speeds that a player can be set to, in times of the recorded pace.
var Speeds = []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128}

// publishPeriod is the least time between two pictures of a player.
const publishPeriod = 40 * time.Millisecond

// commandQueue bounds commands that wait, as they come from keys; more are dropped.
const commandQueue = 16

// Command moves a player.
type Command struct {
	kind int
	n    int
	to   Place
}

// The kinds of commands.
const (
	doToggle = iota
	doFaster
	doFrame
	doIteration
	doEvent
	doIncident
	doEnds
	doSeek
)

// Toggle plays or pauses.
func Toggle() Command { return Command{kind: doToggle} }

// Faster takes the next speed up (+1) or down (−1).
func Faster(by int) Command {
	return Command{kind: doFaster, n: by}
}

// StepFrame goes to the next (+1) or previous (−1) picture and pauses, as all steps do.
func StepFrame(by int) Command {
	return Command{kind: doFrame, n: by}
}

// StepIteration goes to the next picture of another iteration.
func StepIteration(by int) Command {
	return Command{kind: doIteration, n: by}
}

// StepEvent goes to the next picture that brought an event.
func StepEvent(by int) Command {
	return Command{kind: doEvent, n: by}
}

// StepIncident goes to where the next incident or recovery began.
func StepIncident(by int) Command {
	return Command{kind: doIncident, n: by}
}

// End goes to the end (+1) or the start (−1).
func End(by int) Command {
	return Command{kind: doEnds, n: by}
}

// Seek goes to a place; the player goes on as it was.
func Seek(to Place) Command {
	return Command{kind: doSeek, to: to}
}

// Status is the state of a player.
type Status struct {
	At          time.Time // recorded time of the picture
	First, Last time.Time
	Frame       int // from 0
	Frames      int
	Speed       float64
	Playing     bool
	Over        bool   // at the end
	Dropped     uint64 // pictures lost just before this one
	Cut         string // why the recording ends before its end, or ""
}

// Player is a console's source that plays a recording.
type Player struct {
	r       *Recording
	now     func() time.Time
	state   atomic.Pointer[feed.State]
	want    atomic.Pointer[feed.Want]
	changed chan struct{}
	done    chan struct{}
	quit    chan struct{}
	do      chan Command
	once    sync.Once
	wg      sync.WaitGroup

	mu     sync.Mutex // guards status and since
	status Status
	since  time.Time // real time at which the recording was at status.At

	cursor *cursor // the goroutine's own
}

// PlayerOptions shape a player.
type PlayerOptions struct {
	Speed  float64          // 0 = 1
	Paused bool             // begins paused
	From   Place            // where it begins
	Now    func() time.Time // nil = the real clock
}

// NewPlayer starts to play; Close ends it.
func NewPlayer(r *Recording, o PlayerOptions) (*Player, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	p := &Player{
		r:       r,
		now:     o.Now,
		cursor:  r.cursor(),
		changed: make(chan struct{}, 1),
		done:    make(chan struct{}),
		quit:    make(chan struct{}),
		do:      make(chan Command, commandQueue),
	}
	p.want.Store(&feed.Want{Rank: feed.WorstRank, Columns: wide.Columns})
	last := len(r.Moments) - 1
	p.status = Status{
		First:   r.Moments[0].At,
		Last:    r.Moments[last].At,
		Frames:  last + 1,
		Speed:   o.Speed,
		Playing: !o.Paused,
		Cut:     r.Cut,
	}
	at, err := r.Find(o.From)
	if err != nil {
		return nil, err
	}
	if err := p.showFrame(at); err != nil {
		return nil, err
	}
	p.wg.Add(1)
	go p.playLoop()
	return p, nil
}

// Close ends the player and waits.
func (p *Player) Close() {
	p.once.Do(func() { close(p.quit) })
	p.wg.Wait()
}

// Do moves the player; it never blocks.
func (p *Player) Do(c Command) {
	select {
	case p.do <- c:
	default:
	}
}

// Find looks a place up in the recording.
func (p *Player) Find(text string) (Place, error) {
	to, err := ParsePlace(text)
	if err == nil {
		_, err = p.r.Find(to)
	}
	return to, err
}

// Status is the player's present state.
func (p *Player) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Now is the present by the recording's clock: it runs from one picture to
// the next at the player's speed, and stops while the player does.
func (p *Player) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	if !s.Playing || s.Over {
		return s.At
	}
	now, next := p.playedTo(), p.r.Moments[s.Frame+1].At
	if now.After(next) {
		return next
	}
	return now
}

// Latest is the present picture, cut to what the console asked for.
func (p *Player) Latest() *feed.State {
	return fitState(p.state.Load(), *p.want.Load())
}

// Changed is signalled after Latest or Status has changed; signals coalesce.
func (p *Player) Changed() <-chan struct{} { return p.changed }

// Done is closed when the player has been closed.
func (p *Player) Done() <-chan struct{} { return p.done }

// Ask says what the console draws; what was not recorded stays away.
func (p *Player) Ask(w feed.Want) {
	if old := p.want.Swap(&w); *old != w {
		feed.Signal(p.changed)
	}
}

// Blur does nothing: a recording is read from memory.
func (p *Player) Blur(bool) {}

func (p *Player) playLoop() {
	defer p.wg.Done()
	defer close(p.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(p.untilNext())
		select {
		case <-p.quit:
			return
		case c := <-p.do:
			p.execute(c)
		case <-timer.C:
			p.advance()
		}
	}
}

// idle is how long a player waits that has nothing to do.
const idle = time.Hour

// untilNext is how long the next picture is away.
func (p *Player) untilNext() time.Duration {
	s := p.Status()
	if !s.Playing || s.Over {
		return idle
	}
	next := p.r.Moments[s.Frame+1].At
	p.mu.Lock()
	defer p.mu.Unlock()
	due := time.Duration(float64(next.Sub(s.At))/s.Speed) - p.now().Sub(p.since)
	return max(due, publishPeriod-p.now().Sub(p.since), 0)
}

// advance shows the newest picture that is due.
func (p *Player) advance() {
	s := p.Status()
	if !s.Playing || s.Over {
		return
	}
	p.mu.Lock()
	reach := p.playedTo()
	p.mu.Unlock()
	i := s.Frame
	for i+1 < len(p.r.Moments) && !p.r.Moments[i+1].At.After(reach) {
		i++
	}
	if i > s.Frame {
		p.endAt(p.showFrame(i))
	}
}

// playedTo is the recorded time that is played by now; the caller holds mu.
func (p *Player) playedTo() time.Time {
	return p.status.At.Add(time.Duration(float64(p.now().Sub(p.since)) * p.status.Speed))
}

// endAt ends the recording before a frame that makes no sense.
func (p *Player) endAt(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	p.status.Over, p.status.Cut = true, err.Error()
	p.mu.Unlock()
	feed.Signal(p.changed)
}

// showFrame makes frame i the present.
func (p *Player) showFrame(i int) error {
	s, err := p.cursor.moveTo(i)
	if err != nil {
		return err
	}
	m := p.r.Moments[i]
	p.mu.Lock()
	p.status.At = m.At
	p.status.Frame = i
	p.status.Dropped = m.Dropped
	p.status.Over = i == len(p.r.Moments)-1
	p.since = p.now()
	p.mu.Unlock()
	p.state.Store(s)
	feed.Signal(p.changed)
	return nil
}

func (p *Player) execute(c Command) {
	switch c.kind {
	case doToggle:
		p.toggle()
	case doFaster:
		p.faster(c.n)
	case doSeek:
		i, err := p.r.Find(c.to)
		if err == nil {
			p.endAt(p.showFrame(i))
		}
	default:
		p.pausePlaying()
		p.endAt(p.showFrame(p.r.frameAfter(p.Status().Frame, c)))
	}
}

func (p *Player) pausePlaying() {
	p.mu.Lock()
	p.status.Playing = false
	p.mu.Unlock()
}

// toggle plays or pauses; at the end it plays from the beginning.
func (p *Player) toggle() {
	if s := p.Status(); s.Over && s.Frames > 1 {
		p.endAt(p.showFrame(0))
		p.mu.Lock()
		p.status.Playing = true
		p.mu.Unlock()
		return
	}
	now := p.Now()
	p.mu.Lock()
	p.status.Playing = !p.status.Playing
	p.rebase(now)
	p.mu.Unlock()
	feed.Signal(p.changed)
}

// faster takes the next speed of the list.
func (p *Player) faster(by int) {
	now := p.Now()
	p.mu.Lock()
	p.status.Speed = nextSpeed(p.status.Speed, by)
	p.rebase(now)
	p.mu.Unlock()
	feed.Signal(p.changed)
}

// rebase lets the clock run on from now; the caller holds mu.
func (p *Player) rebase(now time.Time) {
	ahead := float64(now.Sub(p.status.At)) / p.status.Speed
	p.since = p.now().Add(-time.Duration(ahead))
}

func nextSpeed(now float64, by int) float64 {
	i, found := slices.BinarySearch(Speeds, now)
	switch {
	case by < 0:
		i--
	case found:
		i++
	}
	if i < 0 || i == len(Speeds) {
		return now
	}
	return Speeds[i]
}

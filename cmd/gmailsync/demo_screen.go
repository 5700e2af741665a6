package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// accountView is what the screen shows of one account.
type accountView struct {
	name         string
	state        string
	stored       int
	listed       int
	units        int64 // used in the last 60 s, by the simulator's meter
	limit        int64
	waiting      int
	longest      time.Duration // of those waiting
	pushToStored time.Duration
	hasPush      bool
	compared     int64
	toCompare    int64 // 0: no comparison is under way
}

func (v accountView) numbers() string {
	s := fmt.Sprintf("%4d/%-4d threads | %5d/%d units in 60 s | %d waiting", v.stored, v.listed, v.units, v.limit, v.waiting)
	if v.waiting > 0 {
		s += fmt.Sprintf(", longest %.1f s", v.longest.Seconds())
	}
	if v.hasPush {
		s += fmt.Sprintf(" | push to stored %.2f s", v.pushToStored.Seconds())
	}
	if v.toCompare > 0 {
		s += fmt.Sprintf(" | compared %d of %d messages", v.compared, v.toCompare)
	}
	return s
}

// short is numbers for a terminal that has no room for words.
func (v accountView) short() string {
	s := fmt.Sprintf("%d/%d threads %d/%d units", v.stored, v.listed, v.units, v.limit)
	if v.toCompare > 0 {
		return s + fmt.Sprintf(" compared %d/%d", v.compared, v.toCompare)
	}
	s += fmt.Sprintf(" %d wait", v.waiting)
	if v.hasPush {
		s += fmt.Sprintf(" push %.2f s", v.pushToStored.Seconds())
	}
	return s
}

// screen shows the demo's progress: bars on a terminal, plain lines elsewhere.
type screen interface {
	show(views []accountView)
	// line prints one line above the bars.
	line(format string, args ...any)
	close()
}

// plainEvery is how often the plain screen prints the accounts' numbers.
const plainEvery = 5 * time.Second

type plainScreen struct {
	mu   sync.Mutex
	out  io.Writer
	next time.Time
}

func (p *plainScreen) show(views []accountView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(plainEvery)
	for _, v := range views {
		fmt.Fprintf(p.out, "%s  %-9s | %s\n", v.name, v.state, v.numbers())
	}
}

func (p *plainScreen) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *plainScreen) close() {}

// wide is the columns of a terminal at which a bar's line has all its words.
const wide = 140

// barScreen draws one bar an account.
type barScreen struct {
	progress *mpb.Progress
	bars     []*mpb.Bar

	mu    sync.Mutex
	views []accountView
}

func newBarScreen(out io.Writer, columns int, names []string) *barScreen {
	bar, numbers := 24, accountView.numbers
	if columns < wide {
		bar, numbers = 10, accountView.short
	}
	s := &barScreen{
		progress: mpb.New(mpb.WithOutput(out), mpb.WithAutoRefresh(), mpb.WithWidth(bar)),
		views:    make([]accountView, len(names)),
	}
	width := 0
	for _, n := range names {
		width = max(width, len(n))
	}
	for i, n := range names {
		name := n + strings.Repeat(" ", width-len(n)+1)
		s.bars = append(s.bars, s.progress.New(0, mpb.BarStyle().Tip("="),
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return name + fmt.Sprintf("%-9s ", s.view(i).state) })),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + numbers(s.view(i)) })),
		))
	}
	return s
}

func (s *barScreen) view(i int) accountView {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views[i]
}

func (s *barScreen) show(views []accountView) {
	s.mu.Lock()
	copy(s.views, views)
	s.mu.Unlock()
	for i, v := range views {
		s.bars[i].SetTotal(int64(v.listed), false) // false: it is never complete, since mail goes on arriving
		s.bars[i].SetCurrent(int64(v.stored))
	}
}

func (s *barScreen) line(format string, args ...any) {
	fmt.Fprintf(s.progress, format+"\n", args...) // fails only after close
}

func (s *barScreen) close() {
	for _, b := range s.bars {
		b.Abort(false)
	}
	s.progress.Wait()
}

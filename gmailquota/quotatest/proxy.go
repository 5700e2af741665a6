package quotatest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy stands before a Redis and, when told to, behaves like one in trouble. It reads whole commands and answers, so
// that each can be dropped or exchanged.
type Proxy struct {
	Addr string

	listener net.Listener
	wg       sync.WaitGroup
	done     chan struct{} // closed with the proxy

	mu       sync.Mutex
	target   string
	mode     mode
	key      string // of the commands that fail; empty: all do
	text     string
	delay    time.Duration
	commands int
	conns    map[net.Conn]bool
	closed   bool
}

type mode uint8

const (
	pass mode = iota
	hang
	fail
	lose
	slow
	cut
)

// NewProxy starts a proxy before the Redis at target and stops it with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l := listen(t)
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, done: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// Pass lets everything through again.
func (p *Proxy) Pass() { p.set(pass, "", 0) }

// Hang reads commands and never answers them.
func (p *Proxy) Hang() { p.set(hang, "", 0) }

// Fail answers every command with an error, "READONLY You can't write against a read only replica.".
func (p *Proxy) Fail(text string) { p.set(fail, text, 0) }

// FailFor answers the commands that name a key with an error, and passes the others on.
func (p *Proxy) FailFor(key, text string) {
	p.set(fail, text, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = key
}

// LoseOne passes the next script on and loses its answer; then everything goes through.
func (p *Proxy) LoseOne() { p.set(lose, "", 0) }

// Delay passes commands on and holds each answer back for d.
func (p *Proxy) Delay(d time.Duration) { p.set(slow, "", d) }

// Cut passes commands on, sends half of each answer and closes the connection.
func (p *Proxy) Cut() { p.set(cut, "", 0) }

// Retarget closes all connections and makes the new ones to addr, as after a failover.
func (p *Proxy) Retarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
	for c := range p.conns {
		_ = c.Close()
	}
}

// Commands is how many scripts were asked for.
func (p *Proxy) Commands() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commands
}

func (p *Proxy) set(m mode, text string, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.key, p.text, p.delay = m, "", text, delay
}

// next tells what to do with a command, and with which text or delay.
func (p *Proxy) next(raw []byte, name string) (mode, string, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	script := strings.HasPrefix(name, "eval")
	if script {
		p.commands++
	}
	m := p.mode
	if m == fail && !bytes.Contains(raw, []byte(p.key)) {
		return pass, "", 0
	}
	if m == lose {
		if !script {
			return pass, "", 0
		}
		p.mode = pass
	}
	return m, p.text, p.delay
}

func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) untrack(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	close(p.done)
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.track(c) {
			p.wg.Add(1)
			go p.serve(c)
		}
	}
}

// serve ends when either side closes.
func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	defer p.untrack(client)
	server, err := p.dial()
	if err != nil || !p.track(server) {
		return
	}
	defer p.untrack(server)
	commands, answers := bufio.NewReader(client), bufio.NewReader(server)
	for {
		raw, name, err := readValue(commands)
		if err != nil {
			return
		}
		m, text, delay := p.next(raw, name)
		switch m {
		case hang:
			continue
		case fail:
			raw = []byte("-" + text + "\r\n")
		default:
			if _, err := server.Write(raw); err != nil {
				return
			}
			if raw, _, err = readValue(answers); err != nil {
				return
			}
		}
		if !p.answer(client, raw, m, delay) {
			return
		}
	}
}

func (p *Proxy) dial() (net.Conn, error) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	return new(net.Dialer).DialContext(context.Background(), "tcp", target)
}

// answer sends a command's answer as the mode wants it. It reports whether the connection can be used further.
func (p *Proxy) answer(client net.Conn, raw []byte, m mode, delay time.Duration) bool {
	switch m {
	case lose:
		return true
	case cut:
		_, _ = client.Write(raw[:len(raw)/2])
		return false
	case slow:
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.done:
			return false
		}
	}
	_, err := client.Write(raw)
	return err == nil
}

// readValue reads one value of Redis' protocol; name is its first string in lower case, which of a command is its name.
func readValue(r *bufio.Reader) (raw []byte, name string, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, "", err
	}
	raw = line
	size := strings.TrimSpace(string(line[1:]))
	switch line[0] {
	case '$', '=', '!':
		n, _ := strconv.Atoi(size)
		if n < 0 {
			return raw, "", nil
		}
		data := make([]byte, n+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, "", err
		}
		return append(raw, data...), strings.ToLower(string(data[:n])), nil
	case '*', '%', '~', '>':
		n, _ := strconv.Atoi(size)
		if line[0] == '%' {
			n *= 2
		}
		for i := range n {
			part, partName, err := readValue(r)
			if err != nil {
				return nil, "", err
			}
			if raw = append(raw, part...); i == 0 {
				name = partName
			}
		}
	}
	return raw, name, nil
}

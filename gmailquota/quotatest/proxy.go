package quotatest

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Proxy stands before a Redis and, when told to, behaves like one in trouble. It reads whole commands and answers, so
// that each can be dropped or exchanged.
type Proxy struct {
	Addr string

	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	mode     mode
	text     string
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
)

// NewProxy starts a proxy before the Redis at target and stops it with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l := listen(t)
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, conns: map[net.Conn]bool{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// Pass lets everything through again.
func (p *Proxy) Pass() { p.set(pass, "") }

// Hang reads commands and never answers them.
func (p *Proxy) Hang() { p.set(hang, "") }

// Fail answers every command with an error, "READONLY You can't write against a read only replica.".
func (p *Proxy) Fail(text string) { p.set(fail, text) }

// LoseOne passes the next script on and loses its answer; then everything goes through.
func (p *Proxy) LoseOne() { p.set(lose, "") }

// Commands is how many scripts were asked for.
func (p *Proxy) Commands() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commands
}

func (p *Proxy) set(m mode, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.text = m, text
}

// next tells what to do with a command.
func (p *Proxy) next(name string) (mode, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	script := strings.HasPrefix(name, "eval")
	if script {
		p.commands++
	}
	m := p.mode
	if m == lose {
		if !script {
			return pass, ""
		}
		p.mode = pass
	}
	return m, p.text
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
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
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
		m, text := p.next(name)
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
			if m == lose {
				continue
			}
		}
		if _, err := client.Write(raw); err != nil {
			return
		}
	}
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

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
	"github.com/gmailsync/gmailsync/worker"
)

// memoryLimit is what the worker may hold of the machine's memory at any time, kB: everything in one process, Redis and
// Pub/Sub included.
const memoryLimit = 300 << 10

// memoryRig is a simulated Gmail in the test's process, without limits, and a worker in a process of its own.
type memoryRig struct {
	*testing.T
	sim    *gmailsim.Server
	config string
	worker *process
}

// newMemoryRig fills the mailboxes of n accounts, starts the worker and connects the accounts.
func newMemoryRig(t *testing.T, cfg gmailsim.Config, n int, fill func(sim *gmailsim.Server, address string)) *memoryRig {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the peak is read from /proc")
	}
	sim, err := gmailsim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	r := &memoryRig{T: t, sim: sim}
	r.config = writeConfig(t, simReady{Endpoint: server.URL + "/", TokenURL: server.URL + "/token"}, `
guard: {userLimit: 60000000, projectLimit: 600000000, dailyLimit: 0}
consumers: {pollInterval: 1s}
`)
	var accounts []gmailsim.Account
	for i := range n {
		account := sim.AddAccount(fmt.Sprintf("user%d@example.com", i))
		fill(sim, account.Address)
		accounts = append(accounts, account)
	}
	r.worker = start(t, "run", "-c", r.config)
	for _, account := range accounts {
		addAccount(t, r.config, account)
	}
	return r
}

// stored waits until every mailbox is mirrored with so many messages, none of them given up.
func (r *memoryRig) stored(messages int64) {
	r.Helper()
	var last []worker.AccountStatus
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		last = statusOf(r.T, r.config)
		all := int64(0)
		for _, s := range last {
			if !isLive(s) || s.DeadLetters > 0 {
				all = -1 << 40
			}
			all += s.Messages
		}
		if all == messages {
			return
		}
	}
	r.Fatalf("%d messages not reached: %+v", messages, last)
}

// finish stops the worker and holds its peak below the limit.
func (r *memoryRig) finish(what string) {
	r.Helper()
	peak := peakOf(r.T, r.worker)
	if err := r.worker.signal(syscall.SIGTERM); err != nil {
		r.Errorf("SIGTERM: %v", err)
	}
	r.Logf("%s: the worker's peak is %d MB", what, peak>>10)
	if peak > memoryLimit {
		r.Errorf("%s: the worker's peak is %d MB, want at most %d", what, peak>>10, memoryLimit>>10)
	}
}

// peakOf is the largest resident size so far of a running process, kB. Not rusage, which counts what the parent held when
// it forked.
func peakOf(t *testing.T, p *process) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var peak int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &peak); err == nil {
			return peak
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// plainMail is a message of about size bytes of text.
func plainMail(id, headers string, size int) []byte {
	line := "A line of some length, of which there are very many.\r\n"
	return fmt.Appendf(nil, "From: a@example.com\r\nSubject: %s\r\nMessage-ID: <%s@example.com>\r\n%s\r\n%s", id, id, headers,
		strings.Repeat(line, max(1, size/len(line))))
}

// attachmentMail is a message with a file of size bytes.
func attachmentMail(id string, size int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "From: a@example.com\r\nSubject: %s\r\nMessage-ID: <%s@example.com>\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n"+
		"--x\r\nContent-Type: text/plain\r\n\r\nSee the file.\r\n--x\r\nContent-Type: application/pdf\r\n"+
		"Content-Disposition: attachment; filename=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n", id, id)
	line := strings.Repeat("QUJD", 19) + "\r\n" // 57 bytes
	b.WriteString(strings.Repeat(line, size/57))
	b.WriteString("--x--\r\n")
	return b.Bytes()
}

// bothMail is a message whose text and HTML have size bytes each.
func bothMail(id string, size int) []byte {
	text := strings.Repeat("A line of some length, of which there are very many.\r\n", size/54)
	return fmt.Appendf(nil, "From: a@example.com\r\nSubject: %s\r\nMessage-ID: <%s@example.com>\r\nContent-Type: multipart/alternative; boundary=x\r\n\r\n"+
		"--x\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n%s\r\n--x\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>%s</p>\r\n--x--\r\n",
		id, id, text, text)
}

// TestMemory holds a worker's peak below 300 MB. GMAILSYNC_MEMORY is the number of threads of the largest import, 200000 for
// what is promised; it takes about as many seconds as there are hundreds of threads.
func TestMemory(t *testing.T) {
	if os.Getenv("GMAILSYNC_MEMORY") == "" {
		t.Skip("set GMAILSYNC_MEMORY to a number of threads, as 20000")
	}
	t.Run("many threads", func(t *testing.T) {
		n := envInt(t, "GMAILSYNC_MEMORY", 0)
		for _, threads := range []int{n / 10, n} {
			r := newMemoryRig(t, gmailsim.Config{}, 1, func(sim *gmailsim.Server, address string) {
				for i := range threads {
					if _, err := sim.Load(address, plainMail(fmt.Sprint("thread", i), "", 2000)); err != nil {
						t.Fatal(err)
					}
				}
			})
			began := time.Now()
			r.stored(int64(threads))
			r.finish(fmt.Sprintf("%d threads in %s", threads, time.Since(began).Round(time.Second)))
		}
	})
	// onyx-dot-app/onyx#5948
	t.Run("a thread of 1,000 messages", func(t *testing.T) {
		r := newMemoryRig(t, gmailsim.Config{}, 1, func(sim *gmailsim.Server, address string) { longThread(t, sim, address, 1000, 50_000) })
		r.stored(1000)
		r.finish("1,000 messages of 50 kB")
	})
	t.Run("large messages", func(t *testing.T) { largeMessages(t, gmailsim.Config{}) })
	t.Run("large messages in one answer", func(t *testing.T) { largeMessages(t, gmailsim.Config{InlineLimit: 16 << 20}) })
}

// largeMessages puts six messages of 8 to 25 MB into each of five mailboxes, and six more when the worker is live.
func largeMessages(t *testing.T, cfg gmailsim.Config) {
	const accounts = 5
	r := newMemoryRig(t, cfg, accounts, func(sim *gmailsim.Server, address string) { putLarge(t, "old", address, sim.Load) })
	r.stored(6 * accounts)
	for _, a := range r.sim.Accounts() {
		putLarge(t, "new", a.Address, r.sim.Deliver)
	}
	r.stored(12 * accounts)
	r.finish("30 large messages in imports, 30 that arrive")
	r.requireTexts("user0@example.com")
}

func putLarge(t *testing.T, prefix, address string, put func(address string, raw []byte, labels ...string) (gmailsim.MessageRef, error)) {
	t.Helper()
	for i := range 2 {
		for _, raw := range [][]byte{
			attachmentMail(fmt.Sprint(prefix, "file", i), 25<<20), plainMail(fmt.Sprint(prefix, "text", i), "", 8<<20),
			bothMail(fmt.Sprint(prefix, "both", i), 8<<20-100),
		} {
			if _, err := put(address, raw); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// longThread puts a thread of n messages of size bytes into a mailbox's past.
func longThread(t *testing.T, sim *gmailsim.Server, address string, n, size int) {
	t.Helper()
	for i := range n {
		headers := ""
		if i > 0 {
			headers = "In-Reply-To: <long@example.com>\r\nReferences: <long@example.com>\r\n"
		}
		raw := plainMail("long", headers, size)
		if i > 0 {
			raw = bytes.Replace(raw, []byte("Message-ID: <long@"), fmt.Appendf(nil, "Message-ID: <%d@", i), 1)
		}
		if _, err := sim.Load(address, raw); err != nil {
			t.Fatal(err)
		}
	}
}

// requireTexts exports an account of TestMemory's large messages: each is there with all its text, and an export keeps
// below the limit as well.
func (r *memoryRig) requireTexts(address string) {
	r.Helper()
	p := start(r.T, "export", "-c", r.config, "--account", address)
	peak, messages := 0, 0
	dec := json.NewDecoder(p.out)
	for dec.More() {
		peak = peakOf(r.T, p)
		var m worker.Message
		if err := dec.Decode(&m); err != nil {
			r.Fatal(err)
		}
		messages++
		subject := ""
		for _, h := range m.Headers {
			if h.Name == "Subject" {
				subject = h.Value
			}
		}
		switch {
		case strings.Contains(subject, "file") && (m.Text != "See the file." || len(m.Attachments) != 1 || m.Attachments[0].Size < 24<<20),
			strings.Contains(subject, "text") && len(m.Text) < 8<<20-100,
			strings.Contains(subject, "both") && (len(m.Text) < 8<<20-200 || len(m.HTML) < 8<<20-200):
			r.Errorf("%s: %d bytes of text, %d of HTML, %d attachments", subject, len(m.Text), len(m.HTML), len(m.Attachments))
		}
	}
	if messages != 12 {
		r.Errorf("%d messages exported, want 12", messages)
	}
	r.Logf("the export's peak is %d MB", peak>>10)
	if peak > memoryLimit {
		r.Errorf("the export's peak is %d MB, want at most %d", peak>>10, memoryLimit>>10)
	}
}

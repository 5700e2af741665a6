package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/configs"
	"github.com/gmailsync/gmailsync/worker"
)

const (
	importAccounts = 4
	importThreads  = 500 // of each account
	threadMessages = 3
)

// BenchmarkImport imports four mailboxes of 500 threads of three messages with every limit off: the simulated Gmail is a
// process of its own, and this one is the worker alone, so that its CPU time and its profiles are the worker's.
//
//	go test -run '^$' -bench Import -benchtime 3x -count 3 -cpuprofile cpu.out -o gmailsync.test ./cmd/gmailsync
//	go tool pprof -top gmailsync.test cpu.out
//
// The first figure to look at is cpu-s/1000threads: the others also measure what else the machine does.
func BenchmarkImport(b *testing.B) {
	boundHeap()
	for _, size := range []int{4 << 10, 40 << 10} {
		b.Run(fmt.Sprintf("%dkB", size>>10), func(b *testing.B) {
			mail := filepath.Join(b.TempDir(), "mail")
			writeThreads(b, mail, importThreads, size)
			sim := startSim(b, "--accounts", fmt.Sprint(importAccounts), "--mail", mail,
				"--user-limit", "0", "--project-limit", "0", "--in-flight", "0")
			cpu := 0.0
			for b.Loop() {
				b.StopTimer()
				w := startWorker(b, sim)
				b.StartTimer()
				before := cpuSeconds()
				importAll(b, w, sim)
				cpu += cpuSeconds() - before
				b.StopTimer()
				if err := w.Stop(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			threads := float64(b.N * importAccounts * importThreads)
			b.ReportMetric(cpu/threads*1000, "cpu-s/1000threads")
			b.ReportMetric(threads/b.Elapsed().Seconds(), "threads/s")
			b.ReportMetric(threads*threadMessages/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// startWorker runs a worker with an empty store in this process.
func startWorker(b *testing.B, sim simReady) *worker.Worker {
	b.Helper()
	cfg := configs.Default()
	cfg.Gmail = configs.Gmail{Endpoint: sim.Endpoint, TokenURL: sim.TokenURL, ClientID: "test"}
	cfg.Store.Path = filepath.Join(b.TempDir(), "mirror.db")
	cfg.Guard.Enabled = false
	w, err := worker.New(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := w.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	return w
}

// importAll connects the simulator's accounts and waits until each is mirrored.
func importAll(b *testing.B, w *worker.Worker, sim simReady) {
	b.Helper()
	for _, a := range sim.Accounts {
		if _, err := w.Mirror().AddAccount(b.Context(), a.Address, a.RefreshToken); err != nil {
			b.Fatal(err)
		}
	}
	looks := time.NewTicker(200 * time.Millisecond) // a look costs milliseconds
	defer looks.Stop()
	for deadline := time.Now().Add(patience); ; <-looks.C {
		accounts, err := w.Mirror().Accounts(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		live := 0
		for _, a := range accounts {
			if a.Live() && a.Threads == importThreads && a.Messages == importThreads*threadMessages {
				live++
			}
		}
		if live == importAccounts {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("not imported after %s: %+v", patience, accounts)
		}
	}
}

// writeThreads writes a folder of messages of about size bytes, each three of them a thread.
func writeThreads(b *testing.B, dir string, threads, size int) {
	b.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	w := proseWriter{r: rand.New(rand.NewPCG(1, uint64(size)))}
	for range 2000 {
		w.words = append(w.words, w.word())
	}
	for t := range threads {
		var refs string
		for m := range threadMessages {
			id := fmt.Sprintf("<%d.%d@example.com>", t, m)
			file := filepath.Join(dir, fmt.Sprintf("%05d-%d.eml", t, m))
			if err := os.WriteFile(file, w.message(t, id, refs, size), 0o600); err != nil {
				b.Fatal(err)
			}
			refs += " " + id
		}
	}
}

// proseWriter writes mail that compresses like prose.
type proseWriter struct {
	r     *rand.Rand
	words []string
}

func (w *proseWriter) word() string {
	var b strings.Builder
	for range 2 + w.r.IntN(9) {
		b.WriteByte("eeeettaaooiinnsshrdlcumwfgypbvk"[w.r.IntN(31)])
	}
	return b.String()
}

// prose is about n bytes of text; common words are far more common.
func (w *proseWriter) prose(n int) string {
	var b strings.Builder
	for column := 0; b.Len() < n; {
		f := w.r.Float64()
		word := w.words[int(f*f*f*float64(len(w.words)))]
		b.WriteString(word)
		if column += len(word) + 1; column > 70 {
			b.WriteString("\r\n")
			column = 0
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// message is what a mail program sends: text and HTML, with the headers that it picks up on its way.
func (w *proseWriter) message(thread int, id, refs string, size int) []byte {
	random := make([]byte, 192)
	for i := range random {
		random[i] = byte(w.r.Uint32())
	}
	var m bytes.Buffer
	for _, h := range []string{
		"Delivered-To: user@example.com",
		"Received: by 2002:a05:6402:1cc9 with SMTP id ds9csp1311867edb; Mon, 2 Nov 2026 10:00:00 -0800 (PST)",
		"Received: from mail.example.org (mail.example.org. [192.0.2.1]) by mx.example.com with ESMTPS; Mon, 2 Nov 2026 10:00:00 -0800",
		"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=example.org; b=" + base64.StdEncoding.EncodeToString(random),
		"From: Somebody Else <somebody@example.org>", "To: user@example.com", "Cc: others@example.net",
		fmt.Sprintf("Subject: Report %d", thread), "Message-ID: " + id, "References:" + refs,
		"Date: Mon, 2 Nov 2026 10:00:00 -0800", "MIME-Version: 1.0", `Content-Type: multipart/alternative; boundary="=_part"`,
	} {
		m.WriteString(h + "\r\n")
	}
	const around = 300 // the lines below
	text := w.prose((size - m.Len() - around) / 2)
	fmt.Fprintf(&m, "\r\n--=_part\r\nContent-Type: text/plain; charset=\"UTF-8\"\r\n\r\n%s\r\n", text)
	fmt.Fprintf(&m, "--=_part\r\nContent-Type: text/html; charset=\"UTF-8\"\r\n\r\n<html><body><p>%s</p></body></html>\r\n--=_part--\r\n",
		strings.ReplaceAll(text, "\r\n", "<br>\r\n"))
	return m.Bytes()
}

package gmailsim

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ReadMail reads mail files: .mbox files, .eml files, and folders of them (searched to the bottom, in the order of
// names; other files in a folder are passed over). Each message is returned as it stands in its file.
func ReadMail(paths ...string) ([][]byte, error) {
	var mails [][]byte
	for _, path := range paths {
		files, err := mailFiles(path)
		if err != nil {
			return nil, fmt.Errorf("reading mail: %w", err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("reading mail: %w", err)
			}
			if strings.EqualFold(filepath.Ext(file), ".mbox") {
				mails = append(mails, splitMbox(data)...)
			} else {
				mails = append(mails, data)
			}
		}
	}
	if len(mails) == 0 {
		return nil, fmt.Errorf("reading mail: no .mbox or .eml messages in %s", strings.Join(paths, ", "))
	}
	return mails, nil
}

func mailFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if !isMailFile(path) {
			return nil, fmt.Errorf("%s: want an .mbox or .eml file, or a folder of them", path)
		}
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && isMailFile(file) {
			files = append(files, file)
		}
		return err
	})
	slices.Sort(files)
	return files, err
}

func isMailFile(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".mbox" || ext == ".eml"
}

// envelope is an mbox separator: "From ", a sender, and a date as asctime writes it.
var envelope = regexp.MustCompile(`^From .*(Mon|Tue|Wed|Thu|Fri|Sat|Sun) +[A-Z][a-z]{2} +\d{1,2} +\d\d:\d\d`)

// splitMbox divides a mail file. A message begins at a separator that stands at the file's start or after a blank line
// and is followed by a From: header: some archives do not quote body lines that begin with "From ". The blank line
// before the next separator belongs to the format, not to the message.
func splitMbox(data []byte) [][]byte {
	var mails [][]byte
	start := -1
	blank := true
	end := func(at int) {
		if start < 0 {
			return
		}
		mail := data[start:at]
		if bytes.HasSuffix(mail, []byte("\n\n")) || bytes.HasSuffix(mail, []byte("\n\r\n")) {
			mail = trimBreak(mail)
		}
		mails = append(mails, mail)
	}
	for pos := 0; pos < len(data); {
		line, rest := cutLine(data[pos:])
		next := len(data) - len(rest)
		if blank && envelope.Match(line) && bytes.HasPrefix(rest, []byte("From:")) {
			end(pos)
			start = next
		}
		blank = len(line) == 0
		pos = next
	}
	end(len(data))
	return mails
}

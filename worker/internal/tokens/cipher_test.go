package tokens

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestTheCipherBindsATokenToItsAccount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	one, err := OpenCipher(path, true)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	sealed, err := one.seal("ann", "geheim")
	if err != nil || strings.Contains(string(sealed), "geheim") {
		t.Fatalf("sealed %q, %v", sealed, err)
	}
	two, err := OpenCipher(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := two.open("ann", sealed); err != nil || got != "geheim" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := two.open("bob", sealed); err == nil {
		t.Error("another account's token was opened")
	}
}

func TestProcessesThatMakeTheKeyTogetherShareOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	ciphers := make([]*Cipher, 8)
	var wg sync.WaitGroup
	for i := range ciphers {
		wg.Go(func() {
			var err error
			if ciphers[i], err = OpenCipher(path, true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	sealed, err := ciphers[0].seal("a", "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range ciphers {
		if _, err := c.open("a", sealed); err != nil {
			t.Error(err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
}

func TestABadKeyFileIsAClearError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, filepath.Join(t.TempDir(), "none", "key")} {
		if _, err := OpenCipher(p, true); err == nil || !strings.Contains(err.Error(), "key file") {
			t.Errorf("%s: got %v", p, err)
		}
	}
}

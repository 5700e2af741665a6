package tokens

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// Cipher encrypts tokens for the store. What it sealed for one account cannot be opened for another. Safe for
// concurrent use.
type Cipher struct{ aead tink.AEAD }

// OpenCipher reads the key file, a Tink keyset in JSON. Where create is set a missing file is made, readable by its owner
// only; of two processes that make it at the same moment one wins and both use the winner's.
func OpenCipher(path string, create bool) (*Cipher, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil, fmt.Errorf("the key file %s is missing, and tokens are stored that no other key opens: put it back", path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKeyFile(path); err == nil {
			data, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(data)))
	if err != nil {
		return nil, fmt.Errorf("key file %s: not a Tink keyset: %w", path, err)
	}
	a, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("key file %s: not a key for AEAD: %w", path, err)
	}
	return &Cipher{aead: a}, nil
}

// makeKeyFile writes a new key beside path and links it there, which fails if another process was first: the file is
// complete from the moment that it exists.
func makeKeyFile(path string) error {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	err = insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(tmp))
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("write a new key: %w", err)
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// seal encrypts text for the account; the empty text stays empty.
func (c *Cipher) seal(account, text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	sealed, err := c.aead.Encrypt([]byte(text), []byte(account))
	if err != nil {
		return nil, fmt.Errorf("encrypt a token: %w", err)
	}
	return sealed, nil
}

func (c *Cipher) open(account string, sealed []byte) (string, error) {
	if len(sealed) == 0 {
		return "", nil
	}
	text, err := c.aead.Decrypt(sealed, []byte(account))
	if err != nil {
		return "", errors.New("a stored token cannot be decrypted: is this the key file that it was stored with?")
	}
	return string(text), nil
}

package mailstore

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// maxBlob bounds what one stored message may grow to when it is read: Gmail's largest message is 50 MB, its base64
// form a third more.
const maxBlob = 128 << 20

// The encoder and decoder are shared: EncodeAll and DecodeAll are safe for concurrent use and take their state from a
// pool inside. The fastest level: the blob is written on the hot path and hardly ever read.
var (
	encoder = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20)))
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxBlob), zstd.WithDecoderConcurrency(0)))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options above are constants
	}
	return v
}

// Compress returns the stored form of Gmail's JSON. Nothing is stored as nothing.
func Compress(raw []byte) []byte {
	if len(raw) == 0 {
		return nil
	}
	return encoder.EncodeAll(raw, make([]byte, 0, len(raw)/3+64))
}

// Decompress reads what Compress wrote.
func Decompress(blob []byte) ([]byte, error) {
	if len(blob) == 0 {
		return nil, nil
	}
	raw, err := decoder.DecodeAll(blob, nil)
	if err != nil {
		return nil, fmt.Errorf("stored message blob: %w", err)
	}
	return raw, nil
}

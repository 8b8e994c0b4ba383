package state

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/musterhpc/muster"
)

// encoder writes the canonical encoding of rows and requests: what hashes are taken of. It is never decoded. A field that is
// added later must write nothing while it is zero: the content hashes of interned specs live in snapshots for ever.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64)  { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)    { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) str(s string)   { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) fixed(b []byte) { e.b = append(e.b, b...) }

// later stands before a field that rows did not have in the first release, and that is not zero.
func (e *encoder) later(field byte) { e.b = append(e.b, 0xff, field) }

func (e *encoder) flag(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) alloc(id muster.AllocID) {
	e.uint(uint64(id.Epoch))
	e.uint(id.Counter)
}

func (e *encoder) labels(labels []muster.Label) {
	e.uint(uint64(len(labels)))
	for i := range labels {
		e.str(labels[i].Key)
		e.str(labels[i].Value)
	}
}

func (e *encoder) strs(list []string) {
	e.uint(uint64(len(list)))
	for _, s := range list {
		e.str(s)
	}
}

// rowHash is the hash of the row that write writes.
func rowHash[R any](e *encoder, write func(*encoder, *R), row *R) uint64 {
	e.b = e.b[:0]
	write(e, row)
	return hash64(e.b)
}

// content gives the first 16 bytes of the SHA-256 of what write writes.
func (e *encoder) content(write func(*encoder)) (hash [16]byte) {
	e.b = e.b[:0]
	write(e)
	sum := sha256.Sum256(e.b)
	copy(hash[:], sum[:])
	return hash
}

// hash64 is a 64-bit hash of b that every machine computes alike. Each step is a bijection of the word that it takes in, so
// that no word is lost.
func hash64(b []byte) uint64 {
	const k1, k2 = 0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f
	h := uint64(len(b)) * k2
	step := func(w uint64) {
		h = bits.RotateLeft64(h^w*k2, 31) * k1
	}
	for len(b) >= 8 {
		step(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	if len(b) > 0 {
		var tail [8]byte
		copy(tail[:], b)
		step(binary.LittleEndian.Uint64(tail[:]))
	}
	h ^= h >> 33
	h *= k2
	h ^= h >> 29
	h *= k1
	return h ^ h>>32
}

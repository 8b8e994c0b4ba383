package wire

import (
	"math"
	"time"

	"github.com/musterhpc/muster"
)

// A decoder turns messages into the domain's structs and keeps the first thing that is wrong. It never panics: what arrives may
// be anything. Converters go both ways by one scheme, XOf(domain) *X and (*X).Domain(); an empty list comes back as nil.
type decoder struct{ err error }

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = muster.Errorf(muster.KindInvalid, format, args...)
	}
}

// known refuses a message with fields that this program doesn't know: acting on the rest could do what nobody asked for.
func (d *decoder) known(message string, unknown []byte) {
	if len(unknown) > 0 {
		d.fail("a field of %s isn't known: this server is older than what wrote it", message)
	}
}

// present refuses a message that lacks a part; false: the part is nil.
func (d *decoder) present(field string, isNil bool) bool {
	if isNil {
		d.fail("%s is missing", field)
	}
	return !isNil
}

// count reads what can't be negative, nor so large that sums of it overflow.
func (d *decoder) count(field string, v int64) int {
	if v < 0 || v > math.MaxInt32 {
		d.fail("%s is out of range: %d", field, v)
		return 0
	}
	return int(v)
}

// number reads a small number of either sign.
func (d *decoder) number(field string, v int64) int {
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail("%s is out of range: %d", field, v)
		return 0
	}
	return int(v)
}

// amount reads bytes, millicores, money: never negative, and the sum of all nodes' must not overflow.
func (d *decoder) amount(field string, v int64) int64 {
	if v < 0 || v > math.MaxInt64>>14 {
		d.fail("%s is out of range: %d", field, v)
		return 0
	}
	return v
}

func (d *decoder) duration(field string, v int64) time.Duration {
	if v < 0 {
		d.fail("%s is negative: %d", field, v)
		return 0
	}
	return time.Duration(v)
}

func (d *decoder) time(field string, v int64) muster.Time {
	if v < 0 {
		d.fail("%s is before 1970: %d", field, v)
		return 0
	}
	return muster.Time(v)
}

func (d *decoder) port(field string, v uint32) uint16 {
	if v > math.MaxUint16 {
		d.fail("%s is no port: %d", field, v)
		return 0
	}
	return uint16(v)
}

// enum reads one of the values 0 to last.
func enum[T ~uint8](d *decoder, field string, v uint32, last T) T {
	if v > uint32(last) {
		d.fail("%s has a value that isn't known: %d; this server is older than what wrote it", field, v)
		return 0
	}
	return T(v)
}

// listOf converts a list; each converter allocates its message.
func listOf[D, M any](list []D, convert func(*D) *M) []*M {
	if len(list) == 0 {
		return nil
	}
	out := make([]*M, len(list))
	for i := range list {
		out[i] = convert(&list[i])
	}
	return out
}

// domainList converts a list back. A nil element can't come off the wire, only out of a program: it is refused too.
func domainList[M, D any](d *decoder, field string, list []*M, convert func(*M) D) []D {
	if len(list) == 0 {
		return nil
	}
	out := make([]D, len(list))
	for i, m := range list {
		if d.present(field, m == nil) {
			out[i] = convert(m)
		}
	}
	return out
}

// numbersOf and numbers convert lists of plain numbers.
func numbersOf[W, D integer](list []D) []W {
	if len(list) == 0 {
		return nil
	}
	out := make([]W, len(list))
	for i, v := range list {
		out[i] = W(v)
	}
	return out
}

type integer interface {
	~int | ~int64 | ~uint8 | ~uint32 | ~uint64
}

func (d *decoder) numbers(field string, list []int64) []int {
	if len(list) == 0 {
		return nil
	}
	out := make([]int, len(list))
	for i, v := range list {
		out[i] = d.number(field, v)
	}
	return out
}

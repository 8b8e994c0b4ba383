package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"unicode"
)

// The model guesses the next letter from the ones before it: each of them has a vector, the vectors go through one layer of
// tanh, and a softmax gives the odds of each letter. (Bengio et al., A Neural Probabilistic Language Model, 2003, for letters.)
const (
	context  = 4  // letters that it looks at
	alphabet = 28 // a to z, the blank, and one sign for all others
	width    = 10 // of a letter's vector
	hidden   = 64
)

type model struct {
	parameters []float64 // all of them, one after the other
	vectors    []float64 // alphabet × width
	in         []float64 // hidden × (context × width)
	bias       []float64 // hidden
	out        []float64 // alphabet × hidden
	outBias    []float64 // alphabet
}

func newModel() *model {
	m := &model{parameters: make([]float64, alphabet*width+hidden*context*width+hidden+alphabet*hidden+alphabet)}
	m.vectors, m.in, m.bias, m.out, m.outBias = parts(m.parameters)
	draw := rand.New(rand.NewPCG(1, 2)) // all ranks begin with the same
	fill := func(p []float64, scale float64) {
		for i := range p {
			p[i] = scale * draw.NormFloat64()
		}
	}
	fill(m.vectors, 0.5)
	fill(m.in, 1/math.Sqrt(context*width))
	fill(m.out, 1/math.Sqrt(hidden))
	return m
}

func parts(p []float64) (vectors, in, bias, out, outBias []float64) {
	take := func(n int) []float64 {
		part := p[:n]
		p = p[n:]
		return part
	}
	return take(alphabet * width), take(hidden * context * width), take(hidden), take(alphabet * hidden), take(alphabet)
}

// learn adds to gradient what the letter after letters[at:at+context] teaches, and gives the loss: minus the logarithm of the
// odds that the model gave it.
func (m *model) learn(letters []byte, at int, gradient []float64) float64 {
	var x, dx [context * width]float64
	for i := range context {
		copy(x[i*width:], m.vectors[int(letters[at+i])*width:][:width])
	}
	var h [hidden]float64
	for j := range h {
		sum := m.bias[j]
		for i, w := range m.in[j*len(x):][:len(x)] {
			sum += w * x[i]
		}
		h[j] = math.Tanh(sum)
	}
	var odds [alphabet]float64
	total := 0.0
	for k := range odds {
		sum := m.outBias[k]
		for j, w := range m.out[k*hidden:][:hidden] {
			sum += w * h[j]
		}
		odds[k] = math.Exp(sum)
		total += odds[k]
	}
	next := int(letters[at+context])
	loss := -math.Log(odds[next] / total)

	vectors, in, bias, out, outBias := parts(gradient)
	var dh [hidden]float64
	for k := range odds {
		d := odds[k] / total
		if k == next {
			d--
		}
		outBias[k] += d
		for j := range h {
			out[k*hidden+j] += d * h[j]
			dh[j] += d * m.out[k*hidden+j]
		}
	}
	for j := range h {
		d := dh[j] * (1 - h[j]*h[j])
		bias[j] += d
		for i := range x {
			in[j*len(x)+i] += d * x[i]
			dx[i] += d * m.in[j*len(x)+i]
		}
	}
	for i := range context {
		for k := range width {
			vectors[int(letters[at+i])*width+k] += dx[i*width+k]
		}
	}
	return loss
}

// readLetters reads a text as numbers below alphabet.
func readLetters(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var letters []byte
	for _, r := range strings.ToLower(string(text)) {
		switch {
		case 'a' <= r && r <= 'z':
			letters = append(letters, byte(r-'a'))
		case unicode.IsSpace(r):
			letters = append(letters, 26)
		default:
			letters = append(letters, 27)
		}
	}
	if len(letters) <= context {
		return nil, fmt.Errorf("%s has %d letters: too few to learn from", path, len(letters))
	}
	return letters, nil
}

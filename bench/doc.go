// Package bench measures what the README and the design claim about speed. Its
// figures, with the machine they are from, are in README.md; nothing here is a
// test, since a test must not depend on the machine's speed.
package bench

// Command house measures the inner order of the packages of this module: how large they
// are, how much of each others use, and how many of their files reach each other in a
// circle. Tests and generated files are left out. It fails where a package is above a
// bound that is set.
//
//	go run ./tools/house [-knot N] [-unused N] [-function N] [-struct N] [-file N] [-quiet] [PACKAGE...]
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// bounds are the most that a package may have; 0: any number.
type bounds struct{ knot, unused, function, fields, file int }

func main() {
	var most bounds
	flag.IntVar(&most.knot, "knot", 0, "the most files that reach each other in a circle")
	flag.IntVar(&most.unused, "unused", 0, "the most exported names that no other package uses")
	flag.IntVar(&most.function, "function", 0, "the most lines of a function")
	flag.IntVar(&most.fields, "struct", 0, "the most fields of a struct")
	flag.IntVar(&most.file, "file", 0, "the most lines of a file")
	quiet := flag.Bool("quiet", false, "print nothing but what is above a bound")
	flag.Parse()
	rooms, err := measure(flag.Args())
	if err == nil && !*quiet {
		err = print(os.Stdout, rooms)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	if above := judge(rooms, most); len(above) > 0 {
		for _, text := range above {
			fmt.Fprintln(os.Stderr, "house:", text)
		}
		os.Exit(1)
	}
}

// print writes a table of rooms.
func print(w io.Writer, rooms []*room) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "files\tlines\texported\tunused\tknot\tfile\tfunction\tfields\t package")
	for _, r := range rooms {
		_, _ = fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t %s\n", len(r.files), r.lines, r.exported, len(r.unused),
			len(r.knot), r.file.lines, r.function.lines, r.fields.lines, r.path)
	}
	return t.Flush()
}

// judge returns a sentence for each bound that is exceeded.
func judge(rooms []*room, most bounds) (above []string) {
	for _, r := range rooms {
		check := func(is, most int, what, where string) {
			if most > 0 && is > most {
				above = append(above, fmt.Sprintf("%s: %d %s, at most %d are allowed: %s", r.path, is, what, most, where))
			}
		}
		check(len(r.knot), most.knot, "files reach each other in a circle", listed(r.knot))
		check(len(r.unused), most.unused, "exported names are used by no other package", listed(r.unused))
		check(r.file.lines, most.file, "lines", r.file.name)
		check(r.function.lines, most.function, "lines", "func "+r.function.name)
		check(r.fields.lines, most.fields, "fields", "struct "+r.fields.name)
	}
	return above
}

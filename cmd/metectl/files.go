package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A source is one file of documents, as a person named it.
type source struct {
	name string // for messages: file:line:col
	text []byte
}

// readSources reads what -f names: files, folders, or - for standard input.
func (c *cli) readSources(names []string) ([]source, error) {
	if len(names) == 0 {
		return nil, usageError("no file given", "add -f FILE, -f FOLDER or -f -")
	}
	var sources []source
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, usageError(fmt.Sprintf("-f %s is there twice", name), "name each file once")
		}
		more, err := c.readSource(name)
		if err != nil {
			return nil, err
		}
		sources = append(sources, more...)
	}
	return sources, nil
}

func (c *cli) readSource(name string) ([]source, error) {
	if name == "-" {
		text, err := io.ReadAll(c.stdin)
		if err != nil {
			return nil, fileError("cannot read standard input", err)
		}
		return []source{{name: "<stdin>", text: text}}, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fileError("cannot read documents", err)
	}
	if !info.IsDir() {
		return readFile(nil, name)
	}
	return readFolder(name)
}

func readFile(sources []source, path string) ([]source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fileError("cannot read documents", err)
	}
	return append(sources, source{name: path, text: text}), nil
}

// readFolder reads every YAML and JSON file in a folder and below. What starts
// with a dot is skipped: in a folder that Kubernetes mounts, "..data" leads to the
// same files once more (C002).
func readFolder(root string) ([]source, error) {
	var sources []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != root && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			return nil
		}
		sources, err = readFile(sources, path)
		return err
	})
	var f *failure
	switch {
	case errors.As(err, &f):
		return nil, err
	case err != nil:
		return nil, fileError("cannot read documents", err)
	case len(sources) == 0:
		return nil, &failure{
			code: exitNotFound, what: "cannot read documents",
			why: root + " holds no .yaml, .yml or .json file", next: "name the folder with the documents",
		}
	}
	return sources, nil
}

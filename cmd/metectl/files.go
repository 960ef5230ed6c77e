package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// A source is one file of documents, as a person named it.
type source struct {
	name string // for messages: file:line:col
	text []byte
}

// readSources reads what -f names: files, folders, or - for standard input. A file
// that a link names once more is read once.
func (c *cli) readSources(names []string) ([]source, error) {
	if len(names) == 0 {
		return nil, usageError("no file given", "add -f FILE, -f FOLDER or -f -")
	}
	var f found
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, usageError(fmt.Sprintf("-f %s is there twice", name), "name each file once")
		}
		if err := c.readSource(&f, name); err != nil {
			return nil, err
		}
	}
	return f.sources, nil
}

// found are the files that have been read.
type found struct {
	sources []source
	files   []fs.FileInfo
}

func (c *cli) readSource(f *found, name string) error {
	if name == "-" {
		text, err := io.ReadAll(c.stdin)
		if err != nil {
			return fileError("cannot read standard input", err)
		}
		f.sources = append(f.sources, source{name: "<stdin>", text: text})
		return nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return fileError("cannot read documents", err)
	}
	if !info.IsDir() {
		return f.read(name)
	}
	return f.readFolder(name)
}

func (f *found) read(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fileError("cannot read documents", err)
	}
	if info.Mode().IsRegular() {
		if slices.ContainsFunc(f.files, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
			return nil
		}
		f.files = append(f.files, info)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fileError("cannot read documents", err)
	}
	f.sources = append(f.sources, source{name: path, text: text})
	return nil
}

// readFolder reads every YAML and JSON file in a folder and below, and what has
// descriptors without an extension, as metectl import does (case C162). What starts with
// a dot is skipped: in a folder that Kubernetes mounts, "..data" leads to the same files
// once more (C002).
func (f *found) readFolder(folder string) error {
	r := importReader{what: "cannot read documents", seen: f.files}
	if err := r.folder(folder, ""); err != nil {
		return err
	}
	for _, file := range r.files {
		f.sources = append(f.sources, source{name: file.name, text: file.text})
	}
	f.files = r.seen
	if len(r.files) == 0 && !r.again {
		return &failure{
			code: exitNotFound, what: "cannot read documents",
			why: folder + " holds no .yaml, .yml or .json file", next: "name the folder with the documents",
		}
	}
	return nil
}

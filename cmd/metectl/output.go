package main

import (
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"
)

// writeJSON prints v for programs: indented, angle brackets as they are.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeYAML prints v with the field names of its JSON form.
func writeYAML(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	// JSON is YAML: reading it back keeps the order of the fields and the
	// integers as they are.
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return err
	}
	block(&node)
	out, err := yaml.Dump(&node, yaml.WithIndent(2))
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// block turns the flow style of JSON into YAML's own.
func block(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		block(child)
	}
}

// writeAs prints v as json or yaml, or t as the table.
func (c *cli) writeAs(v any, t *table) error {
	switch c.output {
	case "json":
		return writeJSON(c.stdout, v)
	case "yaml":
		return writeYAML(c.stdout, v)
	case "table":
		return t.write(c.stdout, terminalWidth(c.stdout))
	}
	return usageError(fmt.Sprintf("-o %s does not go with this command", c.output), "use -o table, json or yaml")
}

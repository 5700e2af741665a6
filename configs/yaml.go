package configs

import (
	"errors"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// parseYAML returns the mapping that the file is, nil for a file without any setting.
func parseYAML(path string, data []byte) (ast.MapNode, error) {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, syntaxError(path, err)
	}
	switch {
	case len(file.Docs) == 0 || len(file.Docs) == 1 && isEmpty(file.Docs[0].Body):
		return nil, nil
	case len(file.Docs) > 1:
		return nil, &Error{Key: configFile, Problem: "it holds more than one document", Allowed: "one YAML document", Where: path}
	}
	root, ok := file.Docs[0].Body.(ast.MapNode)
	if !ok {
		return nil, &Error{
			Key: configFile, Problem: "it is not a mapping",
			Allowed: "sections with their settings: " + strings.Join(sections(), ", "), Where: path,
		}
	}
	return root, nil
}

// syntaxError keeps the parser's sentence and line and leaves out the excerpt, which has many lines and may show secrets.
func syntaxError(path string, err error) *Error {
	out := &Error{Key: configFile, Problem: "not YAML", Allowed: "YAML", Where: path}
	var at yaml.Error
	if errors.As(err, &at) {
		out.Problem = "not YAML: " + strings.Join(strings.Fields(at.GetMessage()), " ")
		out.Where = lineOf(path, at.GetToken().Position.Line)
	}
	return out
}

func isEmpty(n ast.Node) bool {
	if n == nil {
		return true
	}
	t := n.Type()
	return t == ast.NullType || t == ast.CommentType
}

func (r *reader) root(path string, root ast.MapNode) error {
	for it := root.MapRange(); it.Next(); {
		name, where := nameOf(it.Key()), lineOf(path, it.Key().GetToken().Position.Line)
		if !slices.Contains(sections(), name) {
			return unknown(name, it.Value(), where)
		}
		if isEmpty(it.Value()) {
			continue // a section whose settings are all commented out
		}
		section, ok := it.Value().(ast.MapNode)
		if !ok {
			return &Error{Key: name, Value: valueOf(name, it.Value()), Allowed: "a section with the keys " + names(keysOf(name)), Where: where}
		}
		if err := r.section(path, name, section); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) section(path, section string, node ast.MapNode) error {
	keys := keysOf(section)
	for it := node.MapRange(); it.Next(); {
		name, where := nameOf(it.Key()), lineOf(path, it.Key().GetToken().Position.Line)
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		if i < 0 {
			return unknown(section+"."+name, it.Value(), where)
		}
		if err := r.value(path, keys[i], it.Value(), where); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) value(path string, k key, node ast.Node, where string) error {
	if k.path() == "guard.prices" {
		return r.prices(path, k, node, where)
	}
	if list, ok := k.field(&r.config).Addr().Interface().(*[]string); ok {
		return r.list(path, k, list, node, where)
	}
	text, ok := scalar(node)
	if !ok {
		return &Error{Key: k.path(), Value: valueOf(k.path(), node), Allowed: `one plain value ("" for an empty text); leave the key out for its default`, Where: where}
	}
	return r.set(k, text, where)
}

func (r *reader) list(path string, k key, to *[]string, node ast.Node, where string) error {
	r.where[k.path()] = where
	*to = nil
	if isEmpty(node) {
		return nil
	}
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		return &Error{Key: k.path(), Value: valueOf(k.path(), node), Allowed: "a list, such as [INBOX, Work]", Where: where}
	}
	for _, item := range sequence.Values {
		text, ok := scalar(item)
		if !ok {
			return &Error{Key: k.path(), Value: valueOf(k.path(), item), Allowed: "a list of plain values, such as [INBOX, Work]",
				Where: lineOf(path, item.GetToken().Position.Line)}
		}
		*to = append(*to, text)
	}
	return nil
}

func (r *reader) prices(path string, k key, node ast.Node, where string) error {
	prices := map[string]int64{}
	table, ok := node.(ast.MapNode)
	if !ok && !isEmpty(node) {
		return &Error{Key: k.path(), Value: valueOf(k.path(), node), Allowed: "method names with their units", Where: where}
	}
	if ok {
		for it := table.MapRange(); it.Next(); {
			method, at := k.path()+"."+nameOf(it.Key()), lineOf(path, it.Key().GetToken().Position.Line)
			text, _ := scalar(it.Value())
			units, err := parseInt(text)
			if err != nil {
				return &Error{Key: method, Value: valueOf(method, it.Value()), Allowed: "a whole number of units", Where: at}
			}
			prices[nameOf(it.Key())] = units
			r.where[method] = at
		}
	}
	r.config.Guard.Prices = prices
	r.where[k.path()] = where
	return nil
}

func nameOf(k ast.MapKeyNode) string { return k.GetToken().Value }

// scalar returns the text of a plain value; anchors, aliases and tags are none.
func scalar(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return v.GetToken().Value, true
	}
	return "", false
}

// valueOf is what an error shows of a value of any form.
func valueOf(key string, n ast.Node) string {
	if text, ok := scalar(n); ok {
		return shown(key, text)
	}
	switch n.(type) {
	case *ast.NullNode:
		return "nothing"
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	}
	return "an anchor, alias or tag"
}

// unknown is the error for a key that does not exist; name is its path.
func unknown(name string, value ast.Node, where string) *Error {
	e := &Error{Key: name, Problem: "unknown key", Allowed: "the sections " + strings.Join(sections(), ", "), Where: where}
	candidates := sections()
	if section, _, inside := strings.Cut(name, "."); inside {
		e.Allowed = "in " + section + ": " + names(keysOf(section))
		candidates = nil
		for _, k := range keysOf(section) {
			candidates = append(candidates, k.path())
		}
	}
	meant := meant(name, candidates)
	if meant != "" {
		e.Problem += ", did you mean " + meant + "?"
	}
	e.Value = valueOf(name+" "+meant, value) // a misspelled secret is a secret
	return e
}

// meant guesses the key that name was to be: one of the same name elsewhere, else a near spelling; "" if there is none.
func meant(name string, candidates []string) string {
	last := name[strings.LastIndexByte(name, '.')+1:]
	for _, k := range allKeys {
		if k.name == last {
			return k.path()
		}
	}
	return nearest(name, candidates)
}

func names(keys []key) string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.name
	}
	return strings.Join(out, ", ")
}

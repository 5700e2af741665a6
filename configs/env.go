package configs

import (
	"regexp"
	"slices"
	"strings"
)

// kubernetesName matches the variables that Kubernetes sets in every container for each service of the namespace: a
// service named gmailsync-redis gives GMAILSYNC_REDIS_PORT and others. They are no settings.
var kubernetesName = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// environment reads the settings among environ ("NAME=value"). A variable that begins like a section's but names no
// setting is refused, as an unknown key in the file is; other GMAILSYNC_ variables are none of our business.
func (r *reader) environment(environ []string) error {
	environ = slices.Sorted(slices.Values(environ)) // so that the same error is reported each time
	for _, line := range environ {
		name, text, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, envPrefix) || kubernetesName.MatchString(name) {
			continue
		}
		where := "environment " + name
		i := slices.IndexFunc(allKeys, func(k key) bool { return k.env() == name })
		if i >= 0 {
			if err := r.set(allKeys[i], text, where); err != nil {
				return err
			}
			continue
		}
		if section := sectionOf(name); section != "" {
			return unknownVariable(name, text, section)
		}
	}
	return nil
}

func sectionOf(name string) string {
	for _, s := range sections() {
		if strings.HasPrefix(name, envPrefix+upperSnake(s)+"_") {
			return s
		}
	}
	return ""
}

func unknownVariable(name, text, section string) *Error {
	var all []string
	for _, k := range keysOf(section) {
		all = append(all, k.env())
	}
	e := &Error{Key: name, Problem: "unknown setting", Allowed: strings.Join(all, ", "), Where: "environment"}
	near := nearest(name, all)
	if near != "" {
		e.Problem += ", did you mean " + near + "?"
	}
	e.Value = shown(name+" "+near, text) // a misspelled secret is a secret
	return e
}

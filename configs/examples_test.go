package configs

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func TestExamplesAreAllowedAndWarnOfNothing(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			c, err := load(file, nil)
			if err != nil {
				t.Fatal(err)
			}
			if w := c.Warnings(); w != nil {
				t.Errorf("warnings: %q", w)
			}
		})
	}
}

// TestProductionExampleShowsEverySetting: each key stands in its section, set or commented out.
func TestProductionExampleShowsEverySetting(t *testing.T) {
	data, err := os.ReadFile("production.yaml")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^(?:(\w+):|  (?:# )?(\w+):(?: .*)?)$`)
	shown, section := []string{}, ""
	for text := range strings.Lines(string(data)) {
		m := line.FindStringSubmatch(strings.TrimRight(text, "\n"))
		switch {
		case m == nil:
		case m[1] != "":
			section = m[1]
		default:
			shown = append(shown, section+"."+m[2])
		}
	}
	for _, k := range allKeys {
		if !slices.Contains(shown, k.path()) {
			t.Errorf("%s is missing", k.path())
		}
	}
}

// TestProductionExampleShowsTheDefaults: what is no name or address of the example's own is the default.
func TestProductionExampleShowsTheDefaults(t *testing.T) {
	c, err := load("production.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Guard.Prices = nil
	want := []string{
		"gmail.clientID", "redis.url", "pubsub.endpoint", "pubsub.project", "pubsub.topic", "push.listen", "push.audience",
		"push.serviceAccount", "store.path", "store.keyFile", "guard.project", "status.listen", "log.format",
	}
	if got := differing(Default().Resolve(), c); !slices.Equal(got, want) {
		t.Errorf("differs from the defaults in %v, want %v", got, want)
	}
}

func composeProject(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join("..", "docker-compose.yml")}, cli.WithName("gmailsync"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestComposeFileFitsItsConfiguration: the hosts and ports that configs/compose.yaml names are those of the services.
func TestComposeFileFitsItsConfiguration(t *testing.T) {
	project := composeProject(t)
	if got := project.ServiceNames(); !slices.Equal(got, []string{"redis", "sim", "worker"}) {
		t.Fatalf("services %v", got)
	}
	c, err := load("compose.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	worker, sim := project.Services["worker"], strings.Join(project.Services["sim"].Command, " ")
	for _, want := range []string{
		"--listen 0.0.0.0:" + portOf(c.Gmail.Endpoint), "--pubsub 0.0.0.0:" + portOf(c.PubSub.Endpoint),
		"--push http://worker:" + portOf(c.Push.Listen) + "/push", "--push-audience " + c.Push.Audience,
		"--push-service-account " + c.Push.ServiceAccount,
	} {
		if !strings.Contains(sim+" ", want+" ") {
			t.Errorf("sim's command %q lacks %q", sim, want)
		}
	}
	if got := strings.Join(worker.Command, " "); got != "run -c /etc/gmailsync/compose.yaml" {
		t.Errorf("worker's command %q", got)
	}
	wantMount(t, worker, "/etc/gmailsync", types.VolumeTypeBind, "configs")
	wantMount(t, worker, filepath.Dir(c.Store.Path), types.VolumeTypeVolume, "mirror")
	for service := range worker.DependsOn {
		if _, ok := project.Services[service]; !ok {
			t.Errorf("worker depends on %s, which does not exist", service)
		}
	}
}

// wantMount checks a mount, and that what it mounts exists: Docker makes an empty folder of a bind that does not.
func wantMount(t *testing.T, s types.ServiceConfig, target, kind, source string) {
	t.Helper()
	for _, v := range s.Volumes {
		if v.Target != target {
			continue
		}
		if v.Type != kind || filepath.Base(v.Source) != source {
			t.Errorf("%s is mounted from %s %s, want %s %s", target, v.Type, v.Source, kind, source)
		}
		if _, err := os.Stat(v.Source); kind == types.VolumeTypeBind && err != nil {
			t.Error(err)
		}
		return
	}
	t.Errorf("nothing is mounted at %s", target)
}

func portOf(address string) string {
	return strings.TrimSuffix(address[strings.LastIndexByte(address, ':')+1:], "/")
}

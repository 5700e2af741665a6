package consumers

import "testing"

func TestScopeIsARuleAboutOneMessagesLabels(t *testing.T) {
	labels := []Label{{ID: "INBOX", Name: "INBOX"}, {ID: "Label_1", Name: "Work"}, {ID: "Label_2", Name: "Label_1"}}
	for _, c := range []struct {
		name   string
		scope  Scope
		labels []string
		want   bool
	}{
		{"everything", Scope{}, []string{"SPAM"}, true},
		{"no labels at all", Scope{}, nil, true},
		{"spam out", Scope{NoSpam: true}, []string{"SPAM"}, false},
		{"spam out, trash in", Scope{NoSpam: true}, []string{"TRASH"}, true},
		{"trash out, whatever else", Scope{NoTrash: true, LabelsIn: []string{"INBOX"}}, []string{"INBOX", "TRASH"}, false},
		{"a label in", Scope{LabelsIn: []string{"INBOX", "SENT"}}, []string{"INBOX", "UNREAD"}, true},
		{"none of the labels in", Scope{LabelsIn: []string{"INBOX", "SENT"}}, []string{"UNREAD"}, false},
		{"out wins over in", Scope{LabelsIn: []string{"INBOX"}, LabelsOut: []string{"Label_1"}}, []string{"INBOX", "Label_1"}, false},
		{"by name, in any letter case", Scope{LabelsIn: []string{"work"}}, []string{"Label_1"}, true},
		{"an id is not taken for another label's name", Scope{LabelsIn: []string{"Label_1"}}, []string{"Label_2"}, false},
		{"a label in that does not exist", Scope{LabelsIn: []string{"Nowhere"}}, []string{"INBOX"}, false},
		{"a label out that does not exist", Scope{LabelsOut: []string{"Nowhere"}}, []string{"INBOX"}, true},
	} {
		if got := c.scope.Resolve(labels).Has(c.labels); got != c.want {
			t.Errorf("%s: %v has %v: %v, want %v", c.name, c.scope, c.labels, got, c.want)
		}
	}
}

func TestALabelThatTheMailboxDoesNotHaveIsUnknown(t *testing.T) {
	labels := []Label{{ID: "INBOX", Name: "INBOX"}, {ID: "Label_1", Name: "Work"}}
	s := Scope{LabelsIn: []string{"inbox", "INBXO"}, LabelsOut: []string{"work", "Label_1", "Private"}}
	if n := s.Unknown(labels); n != 2 {
		t.Errorf("%d unknown, want INBXO and Private", n)
	}
}

func TestResolveLeavesTheScopeItself(t *testing.T) {
	s := Scope{LabelsIn: []string{"Work"}}
	s.Resolve([]Label{{ID: "Label_1", Name: "Work"}})
	if !s.Equal(Scope{LabelsIn: []string{"Work"}}) {
		t.Errorf("got %v", s)
	}
}

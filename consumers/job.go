package consumers

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kind names one of the three queues.
type Kind string

// The three consumers.
const (
	InitialSync Kind = "initial-sync"
	ThreadBatch Kind = "thread-batch"
	History     Kind = "history"
)

// Kinds lists all of them.
var Kinds = []Kind{InitialSync, ThreadBatch, History}

// jobVersion is the version of the JSON form. A reader refuses a version that it does not know.
const jobVersion = 1

// Job is a hint that there is work; what the work is stands in the database.
type Job struct {
	Kind    Kind      `json:"kind"`
	Account string    `json:"account"`         // account id
	Run     string    `json:"run,omitempty"`   // sync run; initial-sync and thread-batch
	Batch   int64     `json:"batch,omitempty"` // thread-batch
	At      time.Time `json:"at"`              // when the cause of the job was seen
}

// Key tells which jobs are about the same work: jobs of one key are never handled at once, and a job that arrives
// while another of its key waits is folded into it.
func (j Job) Key() string {
	if j.Kind == ThreadBatch {
		return fmt.Sprintf("%s/%s/%d", j.Kind, j.Account, j.Batch)
	}
	return string(j.Kind) + "/" + j.Account
}

type wireJob struct {
	V int `json:"v"`
	Job
}

// Encode writes the JSON form, well below Pub/Sub's 10 MB.
func (j Job) Encode() ([]byte, error) { return json.Marshal(wireJob{V: jobVersion, Job: j}) }

// DecodeJob reads what Encode wrote. Its errors never hold the data itself.
func DecodeJob(data []byte) (Job, error) {
	var w wireJob
	if err := json.Unmarshal(data, &w); err != nil {
		return Job{}, errors.New("job: not JSON of the known form")
	}
	switch {
	case w.V != jobVersion:
		return Job{}, fmt.Errorf("job: version %d, this program reads %d", w.V, jobVersion)
	case w.Account == "":
		return Job{}, errors.New("job: no account")
	case w.Kind == ThreadBatch && w.Batch == 0:
		return Job{}, errors.New("job: thread-batch without a batch")
	case w.Kind != InitialSync && w.Kind != ThreadBatch && w.Kind != History:
		return Job{}, fmt.Errorf("job: unknown kind %q", w.Kind)
	}
	return w.Job, nil
}

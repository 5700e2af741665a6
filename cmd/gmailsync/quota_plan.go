package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotaplan"
)

type planOptions struct {
	limit, burst, threads int64
	jitter                time.Duration
	prices                string
}

// planned is one column of the plan. A window has no refill, no key and no smallest bucket: there they are left out.
type planned struct {
	Limit          int64   `json:"limit"`                    // units a minute
	Burst          int64   `json:"burst"`                    // units
	Refill         int64   `json:"refill,omitempty"`         // units a minute
	Most           int64   `json:"mostIn60s"`                // units
	Fill           float64 `json:"fullAfterSeconds"`         // from empty
	KeyTTL         float64 `json:"keyTTLSeconds,omitempty"`  // guard.keyTTL must be more
	Threads        float64 `json:"threadsPerMinute"`         // threads.get
	Hours          float64 `json:"hoursForThreads"`          // as many as --threads says
	BucketUnits    int64   `json:"bucketUnits"`              // of the provider's bucket below
	Use            float64 `json:"use"`                      // of the limit, simulated
	Fixed          float64 `json:"refusedByFixed"`           // part of the calls, simulated
	Sliding        float64 `json:"refusedBySliding"`         // the same
	Bucket         float64 `json:"refusedByBucket"`          // the same
	SmallestBucket int64   `json:"smallestBucket,omitempty"` // units: what it must hold to refuse nothing
}

func (a *app) quotaPlan() *cobra.Command {
	d := gmailquota.DefaultConfig()
	o := planOptions{}
	c := a.withJSON(&cobra.Command{
		Use:   "plan",
		Short: "Compute and simulate what a user's limit and burst give, beside the default burst and a sliding window",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.planQuota(o) },
	})
	f := c.Flags()
	f.Int64Var(&o.limit, "limit", d.UserLimit, "units a minute")
	f.Int64Var(&o.burst, "burst", d.UserBurst, "units at once, at least the dearest price")
	f.DurationVar(&o.jitter, "jitter", d.Jitter, "between being admitted and arriving at Gmail")
	f.StringVar(&o.prices, "prices", d.PriceList, "price list for the threads: 2026-05 or legacy")
	f.Int64Var(&o.threads, "threads", 10_000, "how long this many threads take")
	return c
}

func (a *app) planQuota(o planOptions) error {
	price, err := gmailquota.PriceOf(o.prices, "threads.get")
	if err != nil {
		return planError(err)
	}
	if o.threads < 0 {
		return usageError{fmt.Errorf("--threads = %d: allowed is 0 or more", o.threads)}
	}
	if o.limit > quotaplan.MaxLimit {
		return usageError{fmt.Errorf("--limit = %d: allowed is up to %d units a minute", o.limit, quotaplan.MaxLimit)}
	}
	this, err := o.column(o.burst, price)
	if err != nil {
		return planError(err)
	}
	standard, err := o.column(gmailquota.DefaultConfig().UserBurst, price)
	if err != nil {
		return planError(err)
	}
	window, err := o.window(price)
	if err != nil {
		return planError(err)
	}
	if a.asJSON {
		return a.printJSON(map[string]planned{"plan": this, "default": standard, "window": window})
	}
	return a.printPlan(o, this, standard, window)
}

func (o planOptions) column(burst, price int64) (planned, error) {
	p, err := gmailquota.Explain(o.limit, burst, o.jitter)
	if err != nil {
		return planned{}, err
	}
	cfg := gmailquota.DefaultConfig()
	cfg.UserLimit, cfg.UserBurst, cfg.Jitter = o.limit, burst, o.jitter
	s, err := quotaplan.Worst(cfg)
	return planned{
		Limit: p.Limit, Burst: p.Burst, Refill: p.Refill, Most: p.Most, Fill: p.FullIn.Seconds(), KeyTTL: p.KeyTTL.Seconds(),
		Threads: float64(p.Refill) / float64(price), Hours: p.Time(o.threads, price).Hours(),
		BucketUnits: quotaplan.BucketOf(o.limit), SmallestBucket: p.SmallestBucket,
		Use: s.Use, Fixed: s.Fixed, Sliding: s.Sliding, Bucket: s.Bucket,
	}, err
}

// window is the column of an exact sliding minute, which the guard does not have.
func (o planOptions) window(price int64) (planned, error) {
	cfg := gmailquota.DefaultConfig()
	cfg.UserLimit, cfg.Jitter = o.limit, o.jitter
	s, err := quotaplan.WorstWindow(cfg)
	threads := s.Use * float64(o.limit) / float64(price)
	return planned{
		Limit: o.limit, Burst: o.limit, Most: o.limit, Fill: quotaplan.NewWindow(o.limit, o.jitter).Rest().Seconds(),
		Threads: threads, Hours: float64(o.threads) / threads / 60, BucketUnits: quotaplan.BucketOf(o.limit),
		Use: s.Use, Fixed: s.Fixed, Sliding: s.Sliding, Bucket: s.Bucket,
	}, err
}

// planError speaks of the flags, where the guard speaks of its fields.
func planError(err error) error {
	var wrong *gmailquota.ConfigError
	if !errors.As(err, &wrong) {
		return err
	}
	flag := map[string]string{"UserLimit": "limit", "UserBurst": "burst", "Jitter": "jitter", "PriceList": "prices"}[wrong.Field]
	if flag == "" {
		return usageError{err}
	}
	return usageError{fmt.Errorf("--%s = %s: allowed is %s", flag, wrong.Value, wrong.Allowed)}
}

func (a *app) printPlan(o planOptions, columns ...planned) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\tTHIS\tDEFAULT BURST\tSLIDING WINDOW*")
	number := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprint(n)
	}
	for _, row := range []struct {
		name string
		of   func(planned) string
	}{
		{"limit, units a minute", func(p planned) string { return fmt.Sprint(p.Limit) }},
		{"burst, units at once", func(p planned) string { return fmt.Sprint(p.Burst) }},
		{"refill, units a minute", func(p planned) string { return number(p.Refill) }},
		{"most units in any 60 s", func(p planned) string { return fmt.Sprint(p.Most) }},
		{"full again after", func(p planned) string { return span(p.Fill) }},
		{"threads a minute", func(p planned) string { return fmt.Sprintf("%.0f", p.Threads) }},
		{fmt.Sprintf("%d threads take", o.threads), func(p planned) string { return span(p.Hours * 3600) }},
		{"guard.keyTTL above", func(p planned) string {
			if p.KeyTTL == 0 {
				return "-"
			}
			return span(p.KeyTTL)
		}},
		{"simulated: use of the limit", func(p planned) string { return fmt.Sprintf("%.1f %%", 100*p.Use) }},
		{"refused by fixed minutes", func(p planned) string { return refusedPart(p.Fixed) }},
		{"refused by a sliding minute", func(p planned) string { return refusedPart(p.Sliding) }},
		{fmt.Sprintf("refused by a bucket of %d, refilled each second", columns[0].BucketUnits), func(p planned) string { return refusedPart(p.Bucket) }},
		{"smallest such bucket that refuses nothing", func(p planned) string { return number(p.SmallestBucket) }},
	} {
		fmt.Fprint(w, row.name)
		for _, p := range columns {
			fmt.Fprint(w, "\t"+row.of(p))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, "* for comparison, the guard has none: a whole minute's units at once, which only a provider that counts minutes allows")
	return nil
}

// span prints seconds, as far as they matter.
func span(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d >= time.Hour {
		return d.Round(time.Minute).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// refusedPart is exact about none.
func refusedPart(part float64) string {
	if part == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f %%", 100*part)
}

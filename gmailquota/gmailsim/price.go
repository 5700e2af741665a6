package gmailsim

import (
	"fmt"
	"maps"
)

// pricesMay2026 is Google's table for projects created on or after 2026-05-01: quota units a call
// (developers.google.com/workspace/gmail/api/reference/quota).
var pricesMay2026 = map[string]int64{
	"getProfile": 1, "watch": 100, "stop": 50,

	"messages.list": 5, "messages.get": 20, "messages.attachments.get": 20, "messages.insert": 25, "messages.import": 25,
	"messages.send": 100, "messages.modify": 5, "messages.trash": 20, "messages.untrash": 5, "messages.delete": 10,
	"messages.batchModify": 50, "messages.batchDelete": 50,

	"threads.list": 10, "threads.get": 40, "threads.modify": 10, "threads.trash": 20, "threads.untrash": 10, "threads.delete": 20,

	"history.list": 2,

	"labels.list": 1, "labels.get": 1, "labels.create": 5, "labels.update": 5, "labels.patch": 5, "labels.delete": 5,

	"drafts.list": 5, "drafts.get": 20, "drafts.create": 10, "drafts.update": 15, "drafts.delete": 10, "drafts.send": 100,
}

// legacyPrices are the rows in which older projects differ.
var legacyPrices = map[string]int64{
	"messages.get": 5, "messages.attachments.get": 5, "messages.trash": 5, "threads.get": 10, "drafts.get": 5,
}

// priceList returns a table by its name: 2026-05 or legacy.
func priceList(name string) (map[string]int64, error) {
	prices := maps.Clone(pricesMay2026)
	switch name {
	case "2026-05":
	case "legacy":
		maps.Copy(prices, legacyPrices)
	default:
		return nil, fmt.Errorf("gmailsim: price list %q is unknown: want 2026-05 or legacy", name)
	}
	return prices, nil
}

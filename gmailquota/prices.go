package gmailquota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The built-in price lists, for Config.PriceList.
const (
	Prices202605 = "2026-05" // Google's list since 2026-05-01
	PricesLegacy = "legacy"  // the one before it, for projects that were promised their earlier quota
)

// prices202605 has the units of each method, as published on
// https://developers.google.com/workspace/gmail/api/reference/quota. Methods are named as in Gmail's discovery document,
// without "gmail.users.".
var prices202605 = map[string]int64{
	"getProfile": 1, "watch": 100, "stop": 50,

	"drafts.create": 10, "drafts.delete": 10, "drafts.get": 20, "drafts.list": 5, "drafts.send": 100, "drafts.update": 15,

	"history.list": 2,

	"labels.create": 5, "labels.delete": 5, "labels.get": 1, "labels.list": 1, "labels.patch": 5, "labels.update": 5,

	"messages.attachments.get": 20,
	"messages.batchDelete":     50, "messages.batchModify": 50, "messages.delete": 10, "messages.get": 20,
	"messages.import": 25, "messages.insert": 25, "messages.list": 5, "messages.modify": 5, "messages.send": 100,
	"messages.trash": 20, "messages.untrash": 5,

	"threads.delete": 20, "threads.get": 40, "threads.list": 10, "threads.modify": 10, "threads.trash": 20,
	"threads.untrash": 10,

	"settings.getAutoForwarding": 1, "settings.getImap": 1, "settings.getLanguage": 1, "settings.getPop": 1,
	"settings.getVacation": 1, "settings.updateAutoForwarding": 5, "settings.updateImap": 5,
	"settings.updateLanguage": 5, "settings.updatePop": 5, "settings.updateVacation": 5,

	"settings.cse.identities.create": 5, "settings.cse.identities.delete": 5, "settings.cse.identities.get": 1,
	"settings.cse.identities.list": 1, "settings.cse.identities.patch": 5,
	"settings.cse.keypairs.create": 5, "settings.cse.keypairs.disable": 5, "settings.cse.keypairs.enable": 5,
	"settings.cse.keypairs.get": 1, "settings.cse.keypairs.list": 1, "settings.cse.keypairs.obliterate": 5,

	"settings.delegates.create": 100, "settings.delegates.delete": 5, "settings.delegates.get": 1,
	"settings.delegates.list": 1,
	"settings.filters.create": 5, "settings.filters.delete": 5, "settings.filters.get": 1, "settings.filters.list": 1,
	"settings.forwardingAddresses.create": 100, "settings.forwardingAddresses.delete": 5,
	"settings.forwardingAddresses.get": 1, "settings.forwardingAddresses.list": 1,

	"settings.sendAs.create": 100, "settings.sendAs.delete": 5, "settings.sendAs.get": 1, "settings.sendAs.list": 1,
	"settings.sendAs.patch": 100, "settings.sendAs.update": 100, "settings.sendAs.verify": 100,
	"settings.sendAs.smimeInfo.delete": 5, "settings.sendAs.smimeInfo.get": 1, "settings.sendAs.smimeInfo.insert": 5,
	"settings.sendAs.smimeInfo.list": 1, "settings.sendAs.smimeInfo.setDefault": 5,
}

// pricesLegacy has the rows that were different before 2026-05-01.
var pricesLegacy = map[string]int64{
	"drafts.get": 5, "messages.attachments.get": 5, "messages.get": 5, "messages.trash": 5, "threads.get": 10,
}

// PriceOf returns the units of one call in a built-in list. An unknown list or method is an error, never a guess.
func PriceOf(list, method string) (int64, error) {
	if list != Prices202605 && list != PricesLegacy {
		return 0, &ConfigError{"PriceList", list, priceLists}
	}
	if list == PricesLegacy {
		if p, ok := pricesLegacy[method]; ok {
			return p, nil
		}
	}
	if p, ok := prices202605[method]; ok {
		return p, nil
	}
	return 0, unpriced(method)
}

const priceLists = `"2026-05" or "legacy"`

func unpriced(method string) error {
	return &PriceError{Method: method, Reason: "it has no price; give it one in Config.Prices"}
}

// priceTable joins a built-in list with the overrides of the configuration.
func priceTable(list string, overrides map[string]int64) (map[string]int64, error) {
	table := maps.Clone(prices202605)
	switch list {
	case Prices202605:
	case PricesLegacy:
		maps.Copy(table, pricesLegacy)
	default:
		return nil, &ConfigError{"PriceList", fmt.Sprintf("%q", list), priceLists}
	}
	for _, method := range slices.Sorted(maps.Keys(overrides)) {
		field := fmt.Sprintf("Prices[%q]", method)
		if _, known := table[method]; !known {
			return nil, &ConfigError{field, fmt.Sprint(overrides[method]), "a method of Gmail, spelled like threads.get" + nearest(method, table)}
		}
		if overrides[method] < 1 || overrides[method] > maxUnits {
			return nil, &ConfigError{field, fmt.Sprint(overrides[method]), fmt.Sprintf("1 to %d units", int64(maxUnits))}
		}
		table[method] = overrides[method]
	}
	return table, nil
}

// nearest helps with a method that is spelled with its prefix or in other letter case.
func nearest(method string, table map[string]int64) string {
	short := strings.TrimPrefix(strings.TrimPrefix(method, "gmail."), "users.")
	for known := range table {
		if strings.EqualFold(known, short) {
			return "; did you mean " + known + "?"
		}
	}
	return ""
}
